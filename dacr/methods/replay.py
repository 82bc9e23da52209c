"""Replay: the model of the last session, fine-tuned on D_t ∪ M_t with cross-entropy."""

from dacr.methods.parts.method import Parts

METHOD = Parts()
