"""USPS: digits from envelopes, grey. Only a sample from a mirror; it can stand in for a domain."""

from dacr.data.sources.upstream import UpstreamDigits


class Usps(UpstreamDigits):
    name = "usps"


SOURCE = Usps()
