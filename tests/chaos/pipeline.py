"""A pipeline that is killed in every stage and started again each time ends with the report of one that ran through.

    python tests/chaos/pipeline.py [--gin_file=umse_small.gin] [--seed=N] [--folder=DIR] [--gin.NAME=VALUE ...]

The command and what it started get SIGKILL once in every stage, after a random share of the time that the stage took in
the uninterrupted run. Prints a table in Markdown; reports that differ by a byte end it with an error. Small models, few
updates, some 10 minutes; `--gin.TRANSLATION_STEPS=1500` and the like win over the numbers here.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

import psutil

SMALL = {
    **{"LIMIT": 400, "WIDTH": 64, "MLP": 128, "LAYERS": 2, "LANGUAGE_MODEL_STEPS": 60, "MULTILINGUAL_STEPS": 60},
    **{"START_STEPS": 240, "TRANSLATION_STEPS": 20, "TLM_STEPS": 40},  # after fewer no word is written
}
LOOK = 0.05  # seconds between looks at the log


class Run:
    """A pipeline's command, its folder and what it printed in all starts."""

    def __init__(self, folder: pathlib.Path, flags: list[str]):
        small = [f"--gin.{name}={value}" for name, value in SMALL.items()]
        self.folder, self.log = folder, folder.with_suffix(".log")
        output = f"--gin.OUTPUT={str(folder)!r}"
        self.command = [sys.executable, "-m", "vmsst_jax.pipeline", *small, *flags, output]

    def start(self) -> psutil.Popen:
        with open(self.log, "wb") as log:
            return psutil.Popen(self.command, stdout=log, stderr=subprocess.STDOUT)

    def finish(self) -> bytes:
        """Its report, after it has run to the end."""
        if self.start().wait():
            raise SystemExit(f"the pipeline failed:\n{self.log.read_text('utf-8')[-2000:]}")
        return (self.folder / "report.md").read_bytes()

    def stages(self) -> list[str]:
        """The stages that the last start came to."""
        return re.findall(r"^\[\d+ of \d+\] (\w+)$", self.log.read_text("utf-8"), re.MULTILINE)

    def seconds(self, stage: str) -> float:
        return json.loads((self.folder / f"{stage}.json").read_text("utf-8"))["seconds"]

    def killed(self, stage: str, after: float) -> str:
        """Starts it and kills all of its processes so many seconds after it came to ``stage``; the stage it was at."""
        process = self.start()
        while process.poll() is None and stage not in self.stages():
            time.sleep(LOOK)
        time.sleep(after)
        if process.poll() is not None:
            raise SystemExit(f"it ended by itself, code {process.poll()}:\n{self.log.read_text('utf-8')[-2000:]}")
        for one in [process, *process.children(recursive=True)]:
            one.kill()
        process.wait()
        return self.stages()[-1]


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--seed", type=int, default=0)
    flags.add_argument("--folder", type=pathlib.Path)
    flags.add_argument("--gin_file", default="umse_small.gin")
    args, rest = flags.parse_known_args()
    folder = args.folder or pathlib.Path(tempfile.mkdtemp(prefix="pipeline-"))
    folder.mkdir(parents=True, exist_ok=True)
    draw, given = random.Random(args.seed), [f"--gin_file={args.gin_file}", *rest]
    straight, killed = (Run(folder / name, given) for name in ("straight", "killed"))
    wanted = straight.finish()
    print("| killed in | seconds after its start | seconds that it takes |\n|---|---|---|")
    for stage in straight.stages():
        takes = straight.seconds(stage)
        after = draw.uniform(0.1, 0.7) * takes
        print(f"| {killed.killed(stage, after)} | {after:.1f} | {takes:.1f} |", flush=True)
    if (found := killed.finish()) != wanted:
        raise SystemExit(f"the reports differ: {straight.folder}/report.md and {killed.folder}/report.md")
    print(f"\nthe reports are the same {len(found):,} bytes; {folder} has all")


if __name__ == "__main__":
    main()
