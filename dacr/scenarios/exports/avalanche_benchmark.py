"""A stream of sessions as a benchmark of Avalanche (avalanche-lib 0.6).

    from avalanche_benchmark import benchmark
    from stream import load
    bench = benchmark(load("."))
    for experience in bench.train_stream:
        strategy.train(experience)
        strategy.eval(bench.seen_stream[experience.current_experience])

Experience t of ``train_stream`` is session t + 1; of ``test_stream`` the test images of its own
class-domain pairs, of ``seen_stream`` those of everything seen so far. There are no task labels:
the paper's methods get none.
"""

from typing import Any

from avalanche.benchmarks import benchmark_from_datasets
from avalanche.benchmarks.scenarios.supervised import with_classes_timeline
from avalanche.benchmarks.utils import DataAttribute
from avalanche.benchmarks.utils.classification_dataset import ClassificationDataset

from dacr.scenarios.exports.stream import Images, Stream

STREAMS = ("train", "test", "seen")


def benchmark(stream: Stream) -> Any:
    """An Avalanche benchmark with the streams train, test and seen."""
    streams = {name: [_dataset(Images(stream, rows)) for rows in stream[name]] for name in STREAMS}
    return with_classes_timeline(benchmark_from_datasets(**streams))


def _dataset(images: Images) -> Any:
    """Images for Avalanche; where domains were asked for they are the attribute ``domains``."""
    attributes = [DataAttribute(images.targets, "targets")]
    if images.domains is not None:
        attributes.append(DataAttribute(images.domains, "domains"))
    return ClassificationDataset([images], data_attributes=attributes)
