"""Random faults against a run of several processes: none may change a loss, hang, or fail without saying why.

    python tests/chaos/chaos.py [--processes=2] [--seed=N] [--folder=DIR] [--only=NAME,NAME]

An uninterrupted run is made first. Then a run of the same recipe meets one fault after another and is started again
after each, on as many processes. After every fault: whoever is left has ended within 60 seconds and says who or what
was the cause, what is logged so far equals the uninterrupted run to the last bit, and the next start goes on from the
newest checkpoint whose checksums were written. The last start runs to the end. Prints a table in Markdown; broken
promises end it with an error. The disk is a tmpfs of 64 MB, which needs root; without it, its faults are left out.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from cluster import Run, last_step, make_workplace, records, saved_steps

SAVE_EVERY = 5
WITHIN = 60  # seconds for all to end after a fault
STARTING = 180  # the same, where all must start first
UNFINISHED = "*.orbax-checkpoint-tmp*"
# Name -> how often.
FAULTS = {
    "kill": 6,
    "kill_in_save": 4,
    "kill_all": 2,
    "kill_in_start": 2,
    "terminate": 5,
    "terminate_in_save": 2,
    "stop": 4,
    "truncate": 2,
    "full_disk": 2,
    "read_only": 1,
    "no_data": 1,
}
NEEDS_DISK = ("full_disk", "read_only")


class Broken(Exception):
    """A promise that wasn't kept."""


def expect(kept: bool, promise: str) -> None:
    if not kept:
        raise Broken(promise)


class Storm:
    """One run and its faults."""

    def __init__(self, folder: pathlib.Path, count: int, steps: int, seed: int):
        self.workplace, self.count, self.steps = make_workplace(folder / "work"), count, steps
        self.disk = folder / "disk"
        self.disk.mkdir(exist_ok=True)
        mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", self.disk]
        self.has_disk = subprocess.run(mount, capture_output=True).returncode == 0
        self.model_dir, self.random = self.disk / "run", random.Random(seed)
        self.straight: list[dict] = []
        self.least_start = 0

    def start(self) -> Run:
        return self._run(self.model_dir, SAVE_EVERY)

    def _run(self, folder: pathlib.Path, save_every: int) -> Run:
        """Starts the recipe on the cache and the vocabulary that ``uninterrupted`` has made: without TensorFlow."""
        bindings = [f"TRAIN_STEPS={self.steps}", f"Rhythm.save_every={save_every}", "TASK_MODULES=[]"]
        vocabulary = self.workplace / "prepared" / "tokenizer.model"
        bindings += ["train.tokenizer=@sentencepiece_file", f'sentencepiece_file.path="{vocabulary}"']
        return Run(self.workplace, "vmsst.gin", folder, *bindings, count=self.count, devices=self.count)

    def goes(self, run: Run, until) -> None:
        """Waits until ``until()`` while the run lives."""
        while not until():
            expect(run.alive(), f"the run ended by itself: {[run.output(i)[-1500:] for i in range(self.count)]}")
            time.sleep(0.01)

    def some_steps(self, run: Run) -> None:
        """Lets it train to a random moment, and checks where it went on."""
        self.goes(run, lambda: run.resumed_at() is not None)
        start = run.resumed_at()
        expect(start >= self.least_start, f"it went on from step {start}, and step {self.least_start} was saved")
        target = start + self.random.randint(1, 12)
        self.goes(run, lambda: last_step(self.model_dir) >= target)
        time.sleep(0.2 * self.random.random())

    def a_save(self, run: Run) -> None:
        """Waits for the midst of a save."""
        self.goes(run, lambda: any((self.model_dir / "checkpoints").glob(UNFINISHED)))
        time.sleep(0.05 * self.random.random())

    def end(self, run: Run, without=(), within=WITHIN) -> tuple[list[int | None], float]:
        """(exit codes, seconds) of the processes that are left."""
        begun = time.monotonic()
        try:
            codes = run.wait(within, without)
        except TimeoutError as error:
            raise Broken(str(error)) from error
        return codes, time.monotonic() - begun

    def others_name(self, run: Run, victim: int, codes, number: int) -> str:
        """Checks that every other process ended with 75 and names ``victim``."""
        said = ""
        for i in set(range(self.count)) - {victim}:
            lost = [line for line in run.output(i).splitlines() if f"process {victim} (" in line and "is lost" in line]
            expect(codes[i] == 75 and len(lost) == 1, f"process {i}: exit code {codes[i]}, {run.output(i)[-1500:]}")
            said = lost[0].partition("is lost: ")[2].partition(". The same")[0]
        return f"exit 75: process {victim} is lost: {said}"

    # Each fault starts from a running run and returns (what was done, the outcome, seconds until all had ended).

    def _signal(self, run: Run, number: int, what: str):
        victim = self.random.randrange(self.count)
        step = last_step(self.model_dir)
        run.processes[victim].send_signal(number)
        stopped = number == signal.SIGSTOP
        codes, seconds = self.end(run, (victim,) if stopped else ())
        if stopped:
            run.kill()  # as its launcher does
        name = signal.Signals(number).name
        return f"{name} to process {victim} {what}, step {step}", self.others_name(run, victim, codes, number), seconds

    def kill(self, run):
        self.some_steps(run)
        return self._signal(run, signal.SIGKILL, "between saves" if not self._saving() else "during a save")

    def _saving(self) -> bool:
        return any((self.model_dir / "checkpoints").glob(UNFINISHED))

    def kill_in_save(self, run):
        self.some_steps(run)
        self.a_save(run)
        return self._signal(run, signal.SIGKILL, "during a save")

    def stop(self, run):
        self.some_steps(run)
        return self._signal(run, signal.SIGSTOP, "(stuck)")

    def kill_all(self, run):
        self.some_steps(run)
        step = last_step(self.model_dir)
        run.kill()
        return f"SIGKILL to all, step {step}", "all gone", 0.0

    def kill_in_start(self, run):
        victim = self.random.randrange(self.count)
        time.sleep(6 * self.random.random())
        run.processes[victim].send_signal(signal.SIGKILL)
        codes, seconds = self.end(run, within=STARTING)
        for i in set(range(self.count)) - {victim}:
            said = run.output(i)
            named = f"process {victim}" in said or (victim == 0 and "process 0 at" in said)
            expect(codes[i] in (2, 75) and named, f"process {i}: exit code {codes[i]}, {said[-1500:]}")
        line = [line for line in said.splitlines() if "error:" in line][-1].partition("error: ")[2]
        return f"SIGKILL to process {victim} while they start", f"exit {codes[i]}: {line[:90]}", seconds

    def _terminate(self, run, what):
        victim = self.random.randrange(self.count)
        run.processes[victim].send_signal(signal.SIGTERM)
        codes, seconds = self.end(run)
        step = last_step(self.model_dir)
        said = f"SIGTERM: saved step {step} of {self.steps}"
        expect(not any(codes) and said in run.output(0), f"exit codes {codes}, {run.output(0)[-1500:]}")
        expect(saved_steps(self.model_dir)[-1] == step, f"step {step} isn't saved whole")
        return f"SIGTERM to process {victim} {what}", f"exit 0: {said}", seconds

    def terminate(self, run):
        self.some_steps(run)
        return self._terminate(run, "at random")

    def terminate_in_save(self, run):
        self.some_steps(run)
        self.a_save(run)
        return self._terminate(run, "during a save")

    def truncate(self, run):
        self.some_steps(run)
        self.goes(run, lambda: len(saved_steps(self.model_dir)) > 1)
        run.kill()
        before, newest = saved_steps(self.model_dir)[-2:]
        place = self.model_dir / "checkpoints" / str(newest)
        for later in (self.model_dir / "checkpoints").iterdir():  # without checksums, written after it
            if later.name.isdigit() and int(later.name) > newest:
                shutil.rmtree(later)
        files = [file for file in place.rglob("*") if file.is_file() and file.stat().st_size > 1]
        file = self.random.choice(files)
        os.truncate(file, file.stat().st_size // 2)
        again = self.start()
        self.goes(again, lambda: again.resumed_at() is not None)
        said = again.output(0)
        expect(again.resumed_at() == before and f"step {newest} is damaged" in said, said[-1500:])
        again.kill()
        self.least_start = before
        return f"{file.relative_to(place.parent)} cut in half", f"damaged, said so; went on from step {before}", 0.0

    def full_disk(self, run):
        self.some_steps(run)
        ballast = self.disk / "ballast"
        step = last_step(self.model_dir)
        try:
            with ballast.open("wb") as file:
                while True:
                    file.write(bytes(1 << 16))
                    file.flush()
        except OSError:
            pass
        codes, seconds = self.end(run)
        ballast.unlink()
        said = run.output(0)
        expect(all(code == 2 for code in codes) and "No space left on device" in said, f"{codes}: {said[-1500:]}")
        line = [line for line in said.splitlines() if "No space left" in line][0].partition("error: ")[2]
        return f"the disk fills up, step {step}", f"exit 2: {line[:90]}", seconds

    def read_only(self, run):
        run.kill()
        subprocess.run(["mount", "-o", "remount,ro", self.disk], check=True)
        again = self.start()
        codes, seconds = self.end(again, within=STARTING)
        subprocess.run(["mount", "-o", "remount,rw", self.disk], check=True)
        said = again.output(0)
        expect(all(codes) and "Read-only file system" in said, f"{codes}: {said[-1500:]}")
        line = [line for line in said.splitlines() if "Read-only" in line][0].partition("error: ")[2]
        return "the disk is read-only at the start", f"exit {codes[0]}: {line[:90]}", seconds

    def no_data(self, run):
        self.some_steps(run)
        file = self.workplace / "cache" / "made_up-train" / self.random.choice(["tokens.npy", "offsets.npy"])
        aside = file.with_suffix(".aside")
        file.rename(aside)
        self.goes(run, lambda step=last_step(self.model_dir): last_step(self.model_dir) > step + 3)  # it is mapped
        run.kill()
        again = self.start()
        codes, seconds = self.end(again, within=STARTING)
        aside.rename(file)
        said = again.output(0)
        expect(all(code == 2 for code in codes) and f"{file.name} is missing" in said, f"{codes}: {said[-1500:]}")
        line = [line for line in said.splitlines() if "is missing" in line][0].partition("error: ")[2]
        return f"{file.name} vanishes", f"the run went on; the next start: exit 2: {line[:90]}", seconds

    def check(self) -> None:
        """What holds after every fault."""
        ours = records(self.model_dir)
        expect(ours == self.straight[: len(ours)], "the log differs from the uninterrupted run's")
        saved = saved_steps(self.model_dir)
        self.least_start = saved[-1] if saved else 0
        lost = last_step(self.model_dir) - self.least_start
        expect(lost <= 2 * SAVE_EVERY, f"{lost} steps aren't saved")

    def uninterrupted(self) -> None:
        Run(self.workplace, "vmsst.gin", self.workplace / "prepared", "TRAIN_STEPS=0").finish()
        folder = self.workplace / "straight"
        run = self._run(folder, self.steps)
        run.finish()
        self.straight = records(folder)

    def last(self) -> str:
        """Runs to the end."""
        run = self.start()
        run.finish()
        expect(records(self.model_dir) == self.straight, "the whole log differs from the uninterrupted run's")
        return f"to step {self.steps} from step {run.resumed_at()}: all losses equal to the last bit"


def weather(storm: Storm, names: list[str]) -> None:
    """Prints a row for each fault."""
    print("| | fault | outcome | seconds until all had ended |\n|---|---|---|---|", flush=True)
    broken = []
    for number, name in enumerate(names, 1):
        run = storm.start()
        try:
            what, outcome, seconds = getattr(storm, name)(run)
            storm.check()
        except Broken as error:
            broken.append(f"fault {number}, {name}: {error}")
            print(broken[-1], file=sys.stderr, flush=True)
            for log in run.logs:  # the next start writes over them
                shutil.copy(log, storm.workplace.parent / f"fault-{number}.{log.name}")
            what, outcome, seconds = name, "BROKEN, see below", 0.0
        finally:
            run.kill()
        print(f"| {number} | {what} | {outcome} | {seconds:.1f} |", flush=True)
    print(f"| | none | {storm.last()} | |", flush=True)
    if broken:
        raise SystemExit("\n".join(["", *broken]))


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--processes", type=int, default=2)
    flags.add_argument("--seed", type=int, default=random.randrange(10**6))
    flags.add_argument("--folder", help="where to work; a temporary one without it")
    flags.add_argument("--only", help="these faults between commas, in some order")
    arguments = flags.parse_args()
    folder = pathlib.Path(arguments.folder or tempfile.mkdtemp(prefix="chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    names = arguments.only.split(",") if arguments.only else [n for n, times in FAULTS.items() for _ in range(times)]
    storm = Storm(folder, arguments.processes, 22 * len(names), arguments.seed)
    try:
        if not storm.has_disk:
            print(f"NOT TRIED, as nothing can be mounted here: {', '.join(n for n in names if n in NEEDS_DISK)}\n")
            names = [name for name in names if name not in NEEDS_DISK]
        storm.random.shuffle(names)
        storm.uninterrupted()
        print(f"{len(names)} faults, {arguments.processes} processes, seed {arguments.seed}\n", flush=True)
        weather(storm, names)
    finally:
        if storm.has_disk:
            subprocess.run(["umount", "--lazy", storm.disk], check=False)


if __name__ == "__main__":
    main()
