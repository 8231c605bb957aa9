"""A workflow of Parsl, as its manual shows it: a file of ALPHA's is worked on at BETA, and what comes of it goes to both.

usage: workflow.py DIRECTORY, where BETA's root is on this host. Prints what the tasks gave, as JSON.
"""

import json
import os
import sys

import parsl
from parsl import File, python_app
from parsl.config import Config
from parsl.data_provider.globus import GlobusStaging
from parsl.executors import HighThroughputExecutor
from parsl.providers import LocalProvider

ALPHA, BETA, ROOT = os.environ["ALPHA"], os.environ["BETA"], sys.argv[1]


@python_app
def add(inputs=(), outputs=()):
    with open(inputs[0]) as numbers:
        total = sum(int(line) for line in numbers)
    with open(outputs[0], "w") as result:
        result.write(f"the sum is {total}\n")
    return total


@python_app
def shout(inputs=(), outputs=()):
    with open(inputs[0]) as words, open(outputs[0], "w") as result:
        result.write(words.read().upper())


config = Config(
    run_dir=os.path.join(os.environ["HOME"], "runs"),
    usage_tracking=0,
    executors=[
        HighThroughputExecutor(
            label="beta",
            address="127.0.0.1",
            loopback_address="127.0.0.1",
            max_workers_per_node=1,
            working_dir=f"{ROOT}/work",
            storage_access=[GlobusStaging(endpoint_uuid=BETA, endpoint_path="/work", local_path=f"{ROOT}/work")],
            provider=LocalProvider(init_blocks=1, max_blocks=1),
        )
    ],
)

with parsl.load(config):
    numbers = File(f"globus://{ALPHA}/input/numbers.txt")
    words = File(f"globus://{ALPHA}/input/words.txt")
    sums = add(inputs=[numbers], outputs=[File(f"globus://{BETA}/results/deep/sum.txt")])
    loud = shout(inputs=[words], outputs=[File(f"globus://{ALPHA}/output/loud.txt")])
    told = {"sum": sums.result()}
    told["staged"] = [future.result().url for future in (sums.outputs[0], loud.outputs[0])]
    missing = shout(inputs=[File(f"globus://{ALPHA}/input/missing.txt")], outputs=[File(f"globus://{ALPHA}/output/never.txt")])
    told["missing"] = type(missing.exception()).__name__
print(json.dumps(told))
