# SPDX-License-Identifier: BSD-3-Clause
"""ReFrame checks of gradsync: bandwidth of collectives, and a short training run.

    reframe -C SITE.py -c contrib/reframe/gradsync_check.py -r -S bindir=/opt/gradsync/bin -S references=refs.json

The references are one JSON file for all systems, in ReFrame's form [value, lower, upper, unit]:

    {"cluster:gpu": {"allreduce.busbw": [180, -0.1, null, "GB/s"], "train.iteration": [52, null, 0.1, "ms"]}}

Without one every figure above 0 passes; wrong values, a failed command or a missing figure never do. `--performance-report`
prints what to write into the file.
"""
import json
import os
import shutil

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import parameter, performance_function, run_after, run_before, sanity_function, variable


class GradsyncTest(rfm.RunOnlyRegressionTest):
    """What both checks share: programs, ranks, references."""

    bindir = variable(str, value="")  # of gradsync; empty: PATH
    references = variable(str, value="")  # a JSON file
    launcher_options = variable(str, value="")  # of mpirun or srun
    ranks = variable(int, value=2)
    ranks_per_node = variable(int, value=0)  # 0: as the launcher distributes them
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    tags = {"gradsync", "interconnect"}

    def program(self, name):
        return os.path.join(self.bindir, name) if self.bindir else shutil.which(name) or name

    @run_after("init")
    def set_ranks(self):
        self.num_tasks = self.ranks
        if self.ranks_per_node:
            self.num_tasks_per_node = self.ranks_per_node

    @run_after("init")
    def read_references(self):
        if not self.references:
            return
        with open(self.references) as file:
            systems = json.load(file)
        self.reference = {
            system: {name.split(".", 1)[1]: tuple(limits) for name, limits in figures.items() if name.startswith(self.figures + ".")}
            for system, figures in systems.items()
        }

    @run_before("run")
    def set_launcher_options(self):
        self.job.launcher.options += self.launcher_options.split()


@rfm.simple_test
class GradsyncCalibrate(GradsyncTest):
    """busbw of one collective at its three largest sizes; every value compared."""

    collective = parameter(["allreduce", "allgather", "reduce-scatter", "alltoall", "sendrecv"])
    sizes = variable(str, value="-b 1M -e 64M -f 2")
    options = variable(str, value="")  # e.g. "--transport nccl -d bfloat16 -N 6"

    @run_before("run")
    def set_command(self):
        self.executable = self.program("gradsync-calibrate")
        self.executable_opts = [f"--collective {self.collective} --cadence isolated", self.sizes, self.options, "--output calibration.h5"]
        self.keep_files = ["calibration.h5"]  # for gradsync-report compare

    @property
    def figures(self):
        return self.collective

    @sanity_function
    def values_are_right(self):
        return sn.assert_found(r"^# Out of bounds values : 0 OK", self.stdout)

    @performance_function("GB/s")
    def busbw(self):
        return sn.extractsingle(r"^# Plateau +: (\S+) GB/s busbw", self.stdout, 1, float)


@rfm.simple_test
class GradsyncTrain(GradsyncTest):
    """Median iteration of a short training run, and what of it waits for gradients."""

    figures = "train"
    data = variable(str, value="")  # folder of CIFAR-10's binary files; empty: a synthetic set is made
    options = variable(str, value="--model lenet --sync ddp --batch-per-rank 16 --iterations 40")

    @run_before("run")
    def set_command(self):
        report, dataset = self.program("gradsync-report"), self.program("gradsync-dataset")
        if not self.data:
            self.prerun_cmds = [f"{dataset} synthesize --to data --train 2000 --test 100"]
        self.executable = self.program("gradsync-train")
        self.executable_opts = [self.options, f"--evaluate none --data {self.data or 'data'}", "--output run.h5"]
        # Without accounting Slurm tells ReFrame no exit code.
        self.postrun_cmds = ['echo "exit code of the run: $?"', f"{report} run.h5 --fom"]
        self.keep_files = ["run.h5"]

    @sanity_function
    def run_is_whole(self):
        return sn.all([sn.assert_found(rf"^{line}", self.stdout) for line in ("exit code of the run: 0$", r"FOM iteration_median\.")])

    @performance_function("ms")
    def iteration(self):
        return sn.extractsingle(r"^FOM iteration_median\.\S+ (\S+) ms", self.stdout, 1, float)

    @performance_function("ms")
    def exposed(self):
        return sn.extractsingle(r"^FOM exposed_median_slowest_rank\.\S+ (\S+) ms", self.stdout, 1, float)
