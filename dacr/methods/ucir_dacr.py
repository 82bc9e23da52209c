"""UCIR w/ ours: its representation with the paper's mixtures for a classifier."""

from dacr.methods.parts.departures import Ours
from dacr.methods.parts.method import Parts
from dacr.methods.ucir import LessForget

METHOD = Parts(LessForget, Ours)
