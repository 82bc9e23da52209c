"""GeoDL w/ ours: its representation with the paper's mixtures for a classifier."""

from dacr.methods.geodl import Geodesic
from dacr.methods.parts.departures import Ours
from dacr.methods.parts.method import Parts

METHOD = Parts(Geodesic, Ours)
