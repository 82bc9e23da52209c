"""Publish the model of an experiment to a folder or to s3://…, for `dacr predict` anywhere.

What is published: the weights, the names of the classes, the parameters, a model card, and the
checksums of all of it. No image is: the terms of a data set may not allow to pass its images on.
Keys, region and endpoint of S3 come from the environment or from ~/.aws, as DVC's do.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

from dacr.data.benchmark import SUMMARY, open_summary
from dacr.errors import UserError
from dacr.evaluation.budget import plain
from dacr.experiments.publishing import SCHEME, Model, is_published, publish
from dacr.experiments.reading import open_experiment, refuse_the_pipelines
from dacr.experiments.trained import open_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "experiment", metavar="EXPERIMENT", help="its name, a git revision, or workspace"
    )
    parser.add_argument("address", metavar="ADDRESS", help="a folder, or s3://bucket/path")
    parser.add_argument(
        "--replace", action="store_true", help="replace a model that was published there before"
    )


def run(arguments: argparse.Namespace) -> None:
    name, address = arguments.experiment, arguments.address
    if is_published(name):
        raise UserError(f"{name} is published already; name an experiment, or workspace")
    if not SCHEME.match(address):
        refuse_the_pipelines(Path(address), "the folder")
    from dacr.report.cards import model_card, read_subject

    subject = read_subject(open_experiment(name), check=False)
    with TemporaryDirectory(prefix="dacr-") as scratch:
        trained = open_run(name, Path(scratch), with_images=False)
        model = Model(
            state=trained.state,
            params=trained.params,
            summary=open_summary(trained.benchmark / SUMMARY),
            facts={
                "experiment": name,
                "revision": subject.revision,
                "metrics": plain(subject.numbers),
                "budget": plain(subject.budget),
            },
            card=model_card(subject),
        )
        files = publish(model, address, arguments.replace)
    print(f"published: {len(files)} files to {address}")
    print(f"ask it: dacr predict {address} image.png")
