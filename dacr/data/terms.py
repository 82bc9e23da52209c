"""Under which terms the images of a source may be used, and who is to be cited."""

from __future__ import annotations

from dataclasses import dataclass

from dacr.runtime.code import family_of


@dataclass(frozen=True)
class Terms:
    licence: str
    """A name or a sentence; an address where there is one."""
    home: str = ""
    cite: str = ""


UNKNOWN = Terms("unknown: the images are the user's own")
TERMS = {
    "mnist": Terms(
        "https://creativecommons.org/licenses/by-sa/3.0/",
        "http://yann.lecun.com/exdb/mnist/",
        "Y. LeCun, L. Bottou, Y. Bengio, P. Haffner: Gradient-based learning applied to document "
        "recognition. Proceedings of the IEEE, 1998.",
    ),
    "svhn": Terms(
        "non-commercial use",
        "http://ufldl.stanford.edu/housenumbers/",
        "Y. Netzer et al.: Reading Digits in Natural Images with Unsupervised Feature Learning. "
        "NIPS Workshop, 2011.",
    ),
    "mnist_m": Terms(
        "none stated; made from MNIST and the photographs of BSDS500 (non-commercial research)",
        "https://github.com/liyxi/mnist-m",
        "Y. Ganin, V. Lempitsky: Unsupervised Domain Adaptation by Backpropagation. ICML, 2015.",
    ),
    "syn": Terms(
        "https://creativecommons.org/licenses/by/4.0/",
        "https://github.com/domainadaptation/datasets",
        "Y. Ganin, V. Lempitsky: Unsupervised Domain Adaptation by Backpropagation. ICML, 2015.",
    ),
    "usps": Terms(
        "none stated",
        cite="J. J. Hull: A database for handwritten text recognition research. PAMI, 1994.",
    ),
    "cifar100": Terms(
        "none stated; the authors ask to be cited",
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        "A. Krizhevsky: Learning Multiple Layers of Features from Tiny Images. 2009.",
    ),
    "domainnet": Terms(
        "non-commercial research and education, under the authors' fair-use notice",
        "http://ai.bu.edu/M3SDA/",
        "X. Peng et al.: Moment Matching for Multi-Source Domain Adaptation. ICCV, 2019.",
    ),
    "handwritten": Terms(
        "https://creativecommons.org/licenses/by/4.0/",
        "https://archive.ics.uci.edu/dataset/80",
        "E. Alpaydin, C. Kaynak: Optical Recognition of Handwritten Digits. UCI, 1998.",
    ),
    "rendered": Terms("MIT, as this project; drawn with fonts of installed packages"),
    "street": Terms("MIT, as this project; drawn with fonts of installed packages"),
    "blended": Terms(
        "https://creativecommons.org/licenses/by/4.0/; over scikit-learn's sample photographs "
        "(CC BY)",
        "https://archive.ics.uci.edu/dataset/80",
        "E. Alpaydin, C. Kaynak: Optical Recognition of Handwritten Digits. UCI, 1998.",
    ),
}


def terms_of(source: str) -> Terms:
    """Of a source, or of the family that it belongs to."""
    family = family_of(source, TERMS)
    return TERMS[family] if family else UNKNOWN
