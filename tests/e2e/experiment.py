#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""gradsync-train --compare: several settings trained in one job, in turn.

usage: experiment.py [NAME...]    (run by tests/run, which sets MPIRUN)
"""
import csv
import io
import re
import subprocess
import sys

import h5py
import harness
import numpy
from harness import BIN, Result, check, mpirun, run, synthetic

DATA = ""
ITERATIONS = 6
MODES = ("none", "gather-scatter", "allreduce", "ddp", "data-parallel", "c10d", "powersgd", "top-k", "local-sgd", "zero1", "fsdp")
LESS = "powersgd:powersgd-rank=2,top-k,local-sgd:local-steps=3:outer=nesterov,zero1,fsdp"
# What a contender's file has in common with that of a job of its own; the rest is times.
ROWS = ("iteration/number iteration/epoch iteration/step iteration/samples iteration/lr loss correct bucket/bytes bucket/kind").split()


def train(ranks, *arguments, model="lenet", batch=16, **how) -> Result:
    return run(mpirun(ranks) + [BIN / "gradsync-train", "--model", model, "--data", DATA, "--batch-per-rank", batch, "--threads", 1,
                                "--evaluate", "none", *arguments], timeout=300, **how)  # fmt: skip


def parameters_of(text) -> dict:
    """By contender; a job without contenders has one without a name."""
    return {name or "": hashes for name, hashes in re.findall(r"^(?:(.+): )?parameters: (.+)$", text, re.M)}


def advised(text) -> str:
    """The setting that joined. One of fewer updates is followed by what is another training in it."""
    return re.search(r"advice: (\S+)(?: \(another training: .*\))? is predicted", text)[1]


def rows_of(path) -> dict:
    with h5py.File(path) as file:
        return {name: file[name][()] for name in ROWS}


def require_equal_rows(one, other) -> None:
    ours, theirs = rows_of(one), rows_of(other)
    for name in ROWS:
        check(numpy.array_equal(ours[name], theirs[name], equal_nan=True), f"{name} of {one} is not that of {other}")


def case_each_contender_trains_as_in_a_job_of_its_own(folder):
    for ranks in (1, 2, 3):
        result = train(ranks, "--compare", "all", "--iterations", ITERATIONS, "--output", folder / f"{ranks}.h5").expect(0)
        together = parameters_of(result.out)
        check(list(together) == [*MODES, f"{MODES[0]} (control)"], f"contenders: {list(together)}")
        for mode in MODES:
            own = folder / f"{ranks}-own-{mode}.h5"
            local = ["--batch-norm", "local"] if mode == "none" else []
            alone = parameters_of(train(ranks, "--sync", mode, *local, "--iterations", ITERATIONS, "--output", own).expect(0).out)
            check(alone == {"": together[mode]}, f"{mode} on {ranks} ranks: {alone} and {together[mode]}")
            require_equal_rows(own, folder / f"{ranks}-{mode}.h5")
        check(together[MODES[0]] == together[f"{MODES[0]} (control)"], f"the control's: {together}")


def case_files_of_an_experiment_are_paired_by_rounds(folder):
    block = 2
    result = train(2, "--compare", "allreduce,ddp:bucket-cap=64KiB:wire-dtype=bf16,allreduce:transport=mpi", "--block", block,
                   "--iterations", ITERATIONS, "--warmup", 2, "--output", folder / "cmp.h5").expect(0, "2 iterations at a time")  # fmt: skip
    names = {"allreduce": "cmp-allreduce.h5", "ddp:bucket-cap=64KiB:wire-dtype=bf16": "cmp-ddp-bucket-cap-64KiB-wire-dtype-bf16.h5",
             "allreduce:transport=mpi": "cmp-allreduce-transport-mpi.h5", "allreduce (control)": "cmp-allreduce-control.h5"}  # fmt: skip
    check(sorted(path.name for path in folder.glob("*.h5")) == sorted(names.values()), "a file for each contender")
    facts = {}
    for contender, name in names.items():
        with h5py.File(folder / name) as file:
            check(list(file["iteration/round"][()]) == [0, 0, 1, 1, 2, 2], f"rounds of {name}: {file['iteration/round'][()]}")
            facts[contender] = {key: file["experiment"][key][()].decode() for key in file["experiment"]}
            check(facts[contender].pop("contender") == contender, f"{name} is of {contender}")
            check(file["config/transport"][()].decode() == ("mpi" if "transport" in contender else "shm"), f"transport of {name}")
    check(len({tuple(sorted(fact.items())) for fact in facts.values()}) == 1, f"one experiment: {facts}")
    check(facts["allreduce"]["contenders"] == ",".join(names) and facts["allreduce"]["block"] == "2", f"{facts}")
    with h5py.File(folder / names["allreduce"]) as file:
        name = file.attrs["run_id"]
        check(facts["allreduce"]["id"] == (name if isinstance(name, str) else name.decode()), "its reference's run names the experiment")
    run([BIN / "gradsync-report", folder, "--plots", "no"]).expect(0)
    two = [folder / names[contender] for contender in ("allreduce", "ddp:bucket-cap=64KiB:wire-dtype=bf16")]
    run([BIN / "gradsync-report", "compare", *two, "--wide", "--threshold", "10000%"]).expect(0, "2 rounds +too few")


def case_a_killed_or_stopped_experiment_goes_on_as_if_it_had_not(folder):
    contenders = "allreduce,ddp,c10d," + LESS
    arguments = ["--iterations", 8, "--checkpoint-every", 2, "--compare", contenders]
    whole = parameters_of(train(2, *arguments, "--output", folder / "whole.h5").expect(0).out)
    for fault, code in (("kill@1:5", 137), ("usr1@0:3", 75)):
        output = folder / f"{code}.h5"
        stopped = train(2, *arguments, "--output", output, "--inject-fault", fault).expect(code)
        check(code == 137 or not list(folder.glob("*.lock")), f"left locked: {list(folder.glob('*.lock'))}")
        result = train(2, *arguments, "--output", output, "--resume", "auto").expect(0, "resumes after iteration")
        check(parameters_of(result.out) == whole, f"after {fault}: {parameters_of(result.out)} and {whole}")
        running_s = 0
        for path in folder.glob(f"{code}-*.h5"):
            with h5py.File(path) as file:
                check(list(file["iteration/number"][()]) == list(range(8)), f"rows of {path.name}")
                rounds = list(file["iteration/round"][()])
                check(all(one in (-1, number) for number, one in enumerate(rounds)), f"rounds of {path.name}: {rounds}")
                running_s += file["epoch/running_time"][()].sum(axis=0).max()
        # Times of what each trained itself: together no longer than both starts, in which all had their turns.
        check(running_s < stopped.seconds + result.seconds, f"all ran for {running_s} s, of {stopped.seconds} and {result.seconds}")
        rounds = [set(h5py.File(path)["iteration/round"][()]) - {-1} for path in folder.glob(f"{code}-*.h5")]
        # The round in which it ended was one of those alone that had their block.
        check(len(rounds) == contenders.count(",") + 2 and len(set.intersection(*rounds)) >= 7, f"rounds that all have: {rounds}")


def case_what_is_recorded_before_the_first_round_is_there_once(folder):
    """A job that stops before it begins the round is resumed from no checkpoint."""
    arguments = ["--iterations", 4, "--compare", "none,ddp", "--advise", 0, "--no-calibrate", "--output", folder / "s.h5"]
    train(2, *arguments, "--time-limit", "1s").expect(75, "stopped after 0 iterations")
    train(2, *arguments, "--resume", "auto").expect(0, "no valid checkpoint")
    with h5py.File(folder / "s-ddp.h5") as file:
        names = file["layer/name"].asstr()[()].tolist()
    check(len(names) == len(set(names)) > 3, f"layers: {names}")


@harness.alone
def case_a_time_limit_leaves_room_for_a_block(folder):
    slow = ("--compare", "none,ddp", "--block", 100, "--advise", 0, "--no-calibrate", "--epochs", 100000)
    network = {"model": "synthetic:parameters=100k,compute=100ms,tensors=4", "batch": 1}
    start = train(2, *slow, "--iterations", 1, **network).expect(0).seconds
    limit_s = 15  # a block takes 10 s
    stopped = train(2, *slow, "--time-limit", f"{limit_s}s", "--output", folder / "t.h5", **network).expect(75, "--time-limit at rank")
    check(stopped.seconds < limit_s + 3 + start, f"it took {stopped.seconds:.1f} s, one iteration of each {start:.1f} s")
    with h5py.File(folder / "t-ddp.h5") as file:
        check(len(file["host/at"]) > 0, "what hosts did until the stop")


@harness.alone
def case_an_experiment_ends_when_its_ratios_are_known(folder):
    arguments = ["--compare", "none,ddp", "--advise", 0, "--iterations", 200, "--epochs", 100]
    result = train(2, *arguments, "--until", "90%", "--output", folder / "known.h5").expect(0, "--until 90%: reached")
    hashes = parameters_of(result.out)
    with h5py.File(folder / "known-ddp.h5") as file:
        rows = len(file["iteration/number"])
        check(rows in (18, 34, 66, 130), f"looked at after 16 rounds and doubles, and 2 of warm-up; ended after {rows}")
        check(file.attrs["status"] in ("complete", b"complete"), f"status {file.attrs['status']}")
        check(sum(file["epoch/iterations"][()]) == rows, f"iterations of epochs: {file['epoch/iterations'][()]}")
    # What was trained is what a run of so many iterations trains.
    alone = parameters_of(train(2, "--sync", "ddp", "--iterations", rows, "--epochs", 100).expect(0).out)
    check(alone == {"": hashes["ddp"]}, f"ended early: {hashes['ddp']}, alone {alone}")
    run([BIN / "gradsync-report", folder, "--plots", "no"]).expect(0)
    train(2, *arguments[:4], "--until", "0.0001%", "--iterations", 20).expect(0, "not reached")
    train(1, *arguments, "--until", "101%").expect(64, "not from 0% to 100%", "as 1%")


def case_an_experiment_that_has_ended_trains_no_more_when_it_is_resumed(folder):
    """It is killed in what follows the training."""
    arguments = ["--compare", "none,ddp", "--iterations", 200, "--epochs", 100, "--until", "90%", "--checkpoint-every", "end", "--advise", 0,
                 "--output", folder / "k.h5"]  # fmt: skip
    train(2, *arguments, environment={"LD_PRELOAD": harness.STRIKE, "STRIKE": "0:calibration:3:KILL"}).expect(137)
    rows = {path.name: int(path.stem.removeprefix("iteration-")) for path in folder.rglob("iteration-*.safetensors")}
    check(len(set(rows.values())) == 1 and max(rows.values()) < 200, f"checkpoints {rows}")
    train(2, *arguments, "--resume", "auto").expect(0, "resumes after iteration")
    with h5py.File(folder / "k-ddp.h5") as file:
        check(len(file["iteration/number"]) == max(rows.values()), f"{len(file['iteration/number'])} rows, {rows}")


def case_all_end_where_one_had_ended_before_the_job_was_resumed(folder):
    """It is killed between the checkpoints of two contenders that ended when the ratios were known."""
    arguments = ["--compare", "none,ddp", "--iterations", 400, "--epochs", 100, "--until", "90%", "--checkpoint-every", "end", "--advise", 0,
                 "--no-calibrate", "--output", folder / "k.h5"]  # fmt: skip
    train(2, *arguments, environment={"LD_PRELOAD": harness.STRIKE, "STRIKE": "0:checkpoint:2:KILL"}).expect(137)
    (checkpoint,) = folder.rglob("iteration-*.safetensors")
    rows = int(checkpoint.stem.removeprefix("iteration-"))
    check(rows < 400, f"ended after {rows}")
    train(2, *arguments, "--resume", "auto").expect(0, f"resumes after iteration {rows}")
    for name in ("k-none.h5", "k-ddp.h5"):
        with h5py.File(folder / name) as file:
            check(len(file["iteration/number"]) == rows, f"{name}: {len(file['iteration/number'])} rows, {rows} of the one that had ended")


def case_an_experiment_that_is_asked_to_stop_while_it_calibrates_is_complete(folder):
    train(2, "--compare", "none,ddp", "--iterations", 8, "--advise", 0, "--output", folder / "s.h5",
          environment={"LD_PRELOAD": harness.STRIKE, "STRIKE": "0:calibration:3:USR1"}).expect(0, "signal USR1 at rank 0: 0 of ", "complete")  # fmt: skip
    with h5py.File(folder / "s-ddp.h5") as file:
        check(file.attrs["status"] == b"complete" and len(file["iteration/number"]) == 8, f"{dict(file.attrs)}")


@harness.alone
def case_a_block_is_as_long_as_a_change_of_contender_needs(folder):
    # Neither checkpoints nor a long warm-up of the job are part of what is measured before it.
    result = train(2, "--compare", "none,ddp:overlap=step", "--block", "auto", "--iterations", 40, "--epochs", 10, "--warmup", 35, "--checkpoint-every", 10,
                   "--advise", 0, "--output", folder / "auto.h5").expect(0)  # fmt: skip
    said = re.search(r"block auto: (\d+) iterations?(?:, the first (\d+) not counted)?; .* ([\d.]+) \[[\d., ]+\]", result.out)
    check(said is not None, "the choice and its reason")
    block, skipped = int(said[1]), int(said[2] or 0)
    for name in ("none", "ddp-overlap-step", "none-control"):
        with h5py.File(folder / f"auto-{name}.h5") as file:
            check(file["config/block"][()].decode() == str(block), f"{name}: block {file['config/block'][()]}")
            check(file["config/block-warmup"][()].decode() == str(skipped), f"{name}: {file['config/block-warmup'][()]}")
            rounds, flags = file["iteration/round"][()], file["iteration/warmup"][()]
            check(all(rounds[i] == i // block for i in range(len(rounds))), f"{name}: rounds {rounds}")
            check(all(flags[i] for i in range(len(flags)) if i % block < skipped), f"{name}: flags {flags}")


def case_blocks_of_one_iteration_leave_nothing_to_overlap(folder):
    arguments = ["--compare", "none,ddp:overlap=step", "--iterations", 4, "--warmup", 1]
    train(2, *arguments).expect(0, "warning: ddp:overlap=step: in blocks of one iteration nothing overlaps")
    check("nothing overlaps" not in train(2, *arguments, "--block", 2).expect(0).err, "a warning of blocks of two iterations")


def case_first_iterations_of_a_block_do_not_count(folder):
    train(1, "--compare", "none,ddp", "--block", 3, "--block-warmup", 2, "--iterations", 12, "--warmup", 1,
          "--output", folder / "b.h5").expect(0, "1 iteration at a time")  # fmt: skip
    with h5py.File(folder / "b-none.h5") as file:
        check(list(file["iteration/warmup"][()]) == [1, 1, 0] * 4, f"flags: {file['iteration/warmup'][()]}")
    report = run([BIN / "gradsync-report", folder, "--table", "cost", "--format", "csv"]).expect(0)
    rounds = {row["contender"]: row["rounds"] for row in csv.DictReader(io.StringIO(report.out))}
    check(rounds["ddp"] == "4", f"rounds: {rounds}")
    short = train(1, "--compare", "none,ddp", "--block", 5, "--iterations", 12).expect(0)
    check(re.search(r"^ddp .* 1$", short.out, re.M), f"the first five hold the warm-up, the last two are no block: {short.out}")
    train(1, "--compare", "none,ddp", "--block", 2, "--block-warmup", 2).expect(64, "no iteration of a block of 2 would count")
    train(1, "--compare", "none,local-sgd", "--block", 3, "--block-warmup", 1).expect(64, "2 iterations of each that count would not hold", "--block 9")


def case_calibration_and_memory_of_contenders(folder):
    result = train(2, "--compare", "none,allreduce:transport=mpi,ddp", "--iterations", 4, "--calibration-sizes", "1KiB:16MiB",
                   "--output", folder / "c.h5").expect(0)  # fmt: skip
    check(re.search(r"memory: 4 contenders hold [\d.]+ .iB a rank .*, [\d.]+ .iB on this host of", result.out), "memory before the start")
    for name, transport in (("none", b"shm"), ("ddp", b"shm"), ("allreduce-transport-mpi", b"mpi")):
        with h5py.File(folder / f"c-{name}.h5") as file:
            kinds = set(zip(file["calibration/collective"][()], file["calibration/transport"][()]))
            check((b"allreduce", transport) in kinds, f"{name} has the laws of its transport: {kinds}")
    train(2, "--compare", "none,ddp", "--iterations", 4, "--no-calibrate", "--output", folder / "n.h5").expect(0)
    with h5py.File(folder / "n-ddp.h5") as file:
        check("calibration" not in file or len(file["calibration/bytes"]) == 0, "no calibration")
    # Each holds 1.3 GiB a rank.
    too_many = ",".join(["ddp"] * 60)
    train(2, "--compare", too_many, "--iterations", 2, model="vit-b16").expect(81, "60 contenders need", "would fit", "interleave = no")


def case_a_job_killed_between_two_files_loses_no_round(folder):
    arguments = ["--compare", "all", "--iterations", 8, "--resume", "auto", "--no-calibrate", "--advise", 0, "--output", folder / "k.h5"]
    words = mpirun(2) + [BIN / "gradsync-train", "--model", "lenet", "--data", DATA, "--batch-per-rank", 16, "--threads", 1, "--evaluate", "none", *arguments]
    with subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=harness.ENVIRONMENT,
                          start_new_session=True) as job:  # fmt: skip
        for line in job.stdout:
            if line.startswith("run file: "):
                harness.end_session(job)
                break
    done = len(list(folder.glob("k-*.h5")))
    train(2, *arguments).expect(0)
    files = list(folder.glob("k-*.h5"))
    check(len(files) == len(MODES) + 1 and not list(folder.glob("*.journal")), f"{done} files were there, now {len(files)}")
    for path in files:
        with h5py.File(path) as file:
            check(list(file["iteration/round"][()]) == list(range(8)), f"rounds of {path.name}: {file['iteration/round'][()]}")
    # Nothing is left to do.
    train(2, *arguments).expect(0)


@harness.alone
def case_what_is_predicted_to_be_faster_joins(folder):
    # A bucket a parameter, over loopback TCP where shared memory would do.
    slow = "ddp:first-bucket=1:bucket-cap=1:transport=tcp-ring"
    small = {"model": "mlp:1024x4", "batch": 1}
    result = train(2, "--compare", slow, "--advise", 1, "--iterations", 30, "--epochs", 100, "--output", folder / "a.h5",
                   **small).expect(0, "advice: ddp", "it joins", "Advice, tried")  # fmt: skip
    name = advised(result.out)
    files = sorted(path.name for path in folder.glob("a-*.h5"))
    check(len(files) == 3, f"files: {files}")
    joined = next(path for path in folder.glob("a-*.h5") if "bucket-cap-1-" not in path.name)
    with h5py.File(joined) as file, h5py.File(folder / "a-ddp-first-bucket-1-bucket-cap-1-transport-tcp-ring.h5") as first:
        facts = {key: file["experiment"][key][()].decode() for key in file["experiment"]}
        check(facts["contender"] == name and facts["against"] == slow, f"{facts}")
        check(facts["id"] == first["experiment/id"][()].decode(), "one experiment")
        check(0 < float(facts["predicted_low"]) <= float(facts["predicted"]) <= float(facts["predicted_high"]), f"{facts}")
        rounds = list(file["iteration/round"][()])
        check(rounds == list(range(int(facts["joined"]), 30)), f"rounds of what joined: {rounds}")
        hashes = parameters_of(result.out)[name]
    settings = [part for setting in name.split(":")[1:] for part in ("--" + setting.split("=")[0], setting.split("=")[1])]
    alone = train(2, "--sync", "ddp", *settings, "--iterations", len(rounds), "--epochs", 100, **small).expect(0)
    check(parameters_of(alone.out) == {"": hashes}, "it trains as in a job of its own")
    run([BIN / "gradsync-report", folder, "--plots", "no"]).expect(0)
    # Advice is given to who averages gradients, though a mode that changes the training is faster.
    train(2, "--compare", f"{slow},local-sgd:local-steps=100", "--advise", 1, "--iterations", 30, "--epochs", 100, "--output", folder / "l.h5",
          **small).expect(0, "it joins")  # fmt: skip
    against = set()
    for path in folder.glob("l-*.h5"):
        with h5py.File(path) as file:
            against |= {file["experiment/against"][()].decode()} if "against" in file["experiment"] else set()
    check(against == {slow}, f"advice against {against}")
    # Without stamps there is nothing to predict from.
    unstamped = train(2, "--compare", "ddp", "--stamps", "off", "--iterations", 12, "--epochs", 100, "--output", folder / "u.h5", **small)
    unstamped.expect(0, "advice: none, since no contender")
    alone = train(2, "--sync", "ddp", "--stamps", "off", "--iterations", 12, "--epochs", 100, **small).expect(0)
    for one in (unstamped, alone):
        check("nan" not in one.out, one.out)
    # A setting whose file is there does not end the others.
    taken, said = {joined.name[len("a-"):]}, None
    for attempt in range(5):  # of settings that are predicted alike another one may be the best this time
        output = folder / f"b{attempt}.h5"
        for name in taken:
            (folder / f"{output.stem}-{name}").touch()
        said = re.search(r"advice: \S+ is not tried: .* exists",
                         train(2, "--compare", slow, "--advise", 1, "--iterations", 30, "--epochs", 100, "--output", output, **small).expect(0).out)
        if said is not None:
            break
        taken |= {path.name[len(output.stem) + 1:] for path in folder.glob(f"{output.stem}-ddp*.h5") if "bucket-cap-1-" not in path.name}
    check(said is not None, f"each that joined was another one: {taken}")
    train(2, "--compare", "ddp,ddp:bucket-cap=64KiB", "--overlap", "none", "--iterations", 12, "--epochs", 100, **small).expect(0, "advice: none, since only messages")
    check("advice:" not in train(2, "--compare", "none,ddp", "--advise", 0, "--iterations", 30).expect(0).out, "--advise 0 tries nothing")


@harness.alone
def case_parts_of_an_iteration_are_left_out_by_contenders(folder):
    names = {"none": "none", "ddp": "ddp", "ddp:overlap=none": "ddp-overlap-none", "ddp:stamps=off": "ddp-stamps-off"}
    for ranks in (1, 2, 3):
        place = folder / str(ranks)
        place.mkdir()
        hashes = parameters_of(train(ranks, "--compare", ",".join(names), "--first-bucket", "16KiB", "--bucket-cap", "64KiB", "--iterations", 12, "--epochs", 10,
                                     "--advise", 0, "--output", place / "c.h5").expect(0).out)  # fmt: skip
        check(hashes["ddp"] == hashes["ddp:overlap=none"] == hashes["ddp:stamps=off"], f"{ranks} ranks: {hashes}")
        for name, stem in names.items():
            with h5py.File(place / f"c-{stem}.h5") as file:
                hidden, forward, whole = (file[f"time/{part}"][()] for part in ("hidden", "forward", "iteration"))
                check((whole > 0).all(), f"{name}: iterations {whole}")
                check(numpy.isnan(forward).all() == (name == "ddp:stamps=off"), f"{name}: forward {forward}")
                if name == "ddp:overlap=none":
                    check((hidden == 0).all() and (ranks == 1 or len(file["bucket/bytes"][-1]) > 1), f"{name}: hidden {hidden}")
        sentences = " ".join(verdict_of(place, "--wide"))
        check(re.search(r"measuring (cost nothing that shows|changed the iteration): an iteration takes [\d.]+ times", sentences), sentences)


@harness.alone
def case_what_joined_goes_on_after_a_stop_and_is_tried_if_nothing_had(folder):
    slow = "ddp:first-bucket=1:bucket-cap=1:transport=tcp-ring"
    small = {"model": "mlp:1024x4", "batch": 1}
    arguments = ["--compare", slow, "--advise", 1, "--iterations", 24, "--epochs", 100, "--checkpoint-every", 2, "--no-calibrate"]
    for stopped_at, before in ((18, True), (3, False)):
        output = folder / f"{stopped_at}.h5"
        stopped = train(2, *arguments, "--output", output, "--inject-fault", f"usr1@0:{stopped_at}", **small).expect(75)
        check(("it joins" in stopped.out) == before, f"before the stop: {stopped.out}")
        result = train(2, *arguments, "--output", output, "--resume", "auto", **small).expect(0, "Advice, tried")
        check(("it joins" in result.out) != before, f"after the stop: {result.out}")
        name = advised(stopped.out + result.out)
        joined = next(path for path in folder.glob(f"{stopped_at}-*.h5") if "bucket-cap-1-" not in path.name)
        with h5py.File(joined) as file:
            rows, first = len(file["iteration/number"]), int(file["experiment/joined"][()])
            check(rows == 24 - first, f"joined in round {first}, rows: {rows}")
        settings = [part for setting in name.split(":")[1:] for part in ("--" + setting.split("=")[0], setting.split("=")[1])]
        alone = train(2, "--sync", "ddp", *settings, "--iterations", rows, "--epochs", 100, **small).expect(0)
        check(parameters_of(alone.out) == {"": parameters_of(result.out)[name]}, f"{name}: as in a job of its own")


def case_fewer_updates_are_another_training(folder):
    result = train(2, "--compare", "ddp,ddp:accumulate=2", "--advise", 0, "--iterations", 12, "--epochs", 100, "--output", folder / "a.h5").expect(
        0, r"ddp:accumulate=2 \(another training: 2 passes per update; times per as many images\)")  # fmt: skip
    alone = train(2, "--sync", "ddp", "--accumulate", 2, "--iterations", 12, "--epochs", 100).expect(0)
    check(parameters_of(alone.out) == {"": parameters_of(result.out)["ddp:accumulate=2"]}, "as in a job of its own")
    with h5py.File(folder / "a-ddp-accumulate-2.h5") as file:
        check(file["experiment/worth"][()] == b"2" and file["config/batch-global"][()] == b"64", "twice the images")
        steady = file["iteration/warmup"][()] == 0
        least_ms, most_ms = (1e3 * numpy.median(of(file["time/iteration"][()][steady], axis=1)) for of in (numpy.min, numpy.max))
    report = run([BIN / "gradsync-report", folder, "--table", "cost", "--format", "csv"]).expect(0)
    run([BIN / "gradsync-report", folder, "--table", "cost", "--wide"]).expect(0, r"another\s+training")
    train(2, "--compare", "ddp,ddp:accumulate=2", "--advise", 0, "--epochs", 1, "--output", folder / "e.h5").expect(0)
    with h5py.File(folder / "e-ddp.h5") as file:
        rounds = list(file["iteration/round"][()])
        check(rounds == list(range(len(rounds))), f"rounds, of which the other one takes part in half: {rounds}")
    rows = {row["contender"]: row for row in csv.DictReader(line for line in report.out.splitlines() if line and not line.startswith("#"))}
    said_ms = float(rows["ddp:accumulate=2"]["iteration_ms"])
    check(0.495 * least_ms <= said_ms <= 0.505 * most_ms, f"per as many images: {said_ms} of {least_ms} to {most_ms} ms")


def verdict_of(*places) -> list:
    """Its sentences, as a terminal shows them."""
    text = run([BIN / "gradsync-report", *places, "--plots", "no"]).expect(0).out
    lines = text[text.index("Verdict\n"):text.index("\n\n")]
    return re.sub(r"\n  (?!\(--wide)", " ", lines).split("\n- ")[1:]


@harness.alone
def case_the_verdict_says_what_synchronization_costs_first(folder):
    text = train(2, "--compare", "none,ddp,allreduce", "--advise", 0, "--iterations", 10, "--output", folder / "cmp.h5").expect(0).out
    printed = {name: [float(part) for part in parts] for name, *parts in re.findall(r"^(\S+) +[\d.]+ +([\d.]+) \[([\d.]+), ([\d.]+)\]", text, re.M)}
    table = run([BIN / "gradsync-report", folder, "--plots", "no", "--table", "cost", "--format", "csv"]).expect(0).out
    for row in csv.DictReader(line for line in table.splitlines() if line and not line.startswith("#")):
        if row["contender"] in printed:
            values = [float(row[key]) for key in ("ratio", "ratio_low", "ratio_high")]
            check(numpy.allclose(values, printed.pop(row["contender"]), atol=1e-3), f"the report's {row}, the trainer's {text}")
    check(not printed and "ddp" in table, f"ratios that the report has not: {printed}")
    sentences = verdict_of(folder)
    check(len(sentences) <= 8 and sentences[0].startswith("gradient synchronization "), f"{sentences}")
    check(re.search(r"ddp at 2 ranks .* \(-?[\d.]+ ?%? to [\d.]+.* (times as long as|than) without it", sentences[0]), sentences[0])
    check(any(re.match(r"differences below [\d.]+ % cannot be distinguished from noise here: the control, none again", one) for one in sentences),
          f"no control: {sentences}")  # fmt: skip


@harness.alone
def case_the_verdict_names_the_rank_that_is_late_and_its_phase(folder):
    for fault, rank, phase in (("slow@1:400", 1, "forward pass"), ("slow-loader@0:800", 0, "wait for data")):
        path = folder / f"{phase}.h5"
        train(2, "--sync", "ddp", "--iterations", 10, "--inject-fault", fault, "--output", path).expect(0)
        named = [one for one in verdict_of(path) if re.search(r"[^-]\brank \d", one) and "shared host" not in one]
        check(len(named) == 1 and re.search(rf"straggler wait is .* of an iteration of ddp .* for rank {rank} on host \S+: its {phase} takes ",
                                            named[0]), f"after {fault}: {verdict_of(path)}")  # fmt: skip


def case_what_contenders_may_differ_in(folder):
    for compare, texts in (
        ("ddp,nonsense", ["'nonsense' is no mode", "none, gather-scatter"]),
        ("ddp,dpd", ["'dpd' is no mode; did you mean ddp"]),
        ("ddp,ddp:lr=0.1", ["sets lr, which changes what is learned", "--lr for all contenders"]),
        ("ddp,ddp:threads=2", ["sets threads, which changes"]),
        ("ddp,ddp:bucket-cpa=1MiB", ["'bucket-cpa', not an option of the trainer; did you mean bucket-cap"]),
        ("ddp,ddp:bucket-cap", ["has 'bucket-cap', which sets no option"]),
        ("ddp,ddp:sync=none", ["sets sync, which changes the mode"]),
        ("ddp,ddp:bucket-cap=much", ["bucket-cap"]),
    ):
        train(1, "--compare", compare, "--iterations", 2).expect(64, *texts)
    train(1, "--compare", "ddp,none", "--sync", "ddp", "--iterations", 2).expect(64, "--compare names the modes")
    train(1, "--compare", "ddp,c10d:overlap=none", "--iterations", 2).expect(64, "none cannot be combined with --sync c10d")
    train(1, "--compare", "ddp,none", "--resume", folder / "x.h5", "--iterations", 2).expect(64, "resume")


def prepare(folder) -> None:
    global DATA
    DATA = synthetic(folder, 320, 32)


if __name__ == "__main__":
    sys.exit(harness.run_cases(dict(globals()), prepare, at_once=2))
