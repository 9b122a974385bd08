# SPDX-License-Identifier: BSD-3-Clause
"""Spack package of gradsync, for a repository of your own (Spack 1.0 or later):

    spack repo create ~/spack-local && spack repo add ~/spack-local/spack_repo/*    # prints where packages go
    cp contrib/spack/package.py PACKAGES/gradsync/package.py
    git checkout bc75a6c && make dist && cp build/gradsync-*.tar.xz .    # release 0.3.0; Spack takes the archive from the current folder
    spack install gradsync@0.3.0+cuda cuda_arch=90
"""
import os

from spack.package import *
from spack_repo.builtin.build_systems.cuda import CudaPackage
from spack_repo.builtin.build_systems.makefile import MakefilePackage


class Gradsync(MakefilePackage, CudaPackage):
    """Measures what gradient synchronization costs on a cluster: trains with data parallelism over MPI in several modes,
    records every iteration of every rank, computes the tables and plots of a scaling study."""

    url = f"file://{os.getcwd()}/gradsync-0.3.0.tar.xz"
    manual_download = True

    license("BSD-3-Clause", checked_by="The gradsync authors")

    version("0.3.0", expand=True)

    variant("tests", default=False, description="Build the tests, and run those that need neither MPI nor a GPU")

    depends_on("cxx", type="build")
    depends_on("gmake", type="build")
    depends_on("xz", type="build")
    depends_on("mpi")
    depends_on("hdf5")
    depends_on("openssl@3:")
    depends_on("zlib")
    depends_on("boost@1.74:+program_options+math")
    depends_on("fmt@9.1:")
    depends_on("nlohmann-json@3.11:")
    depends_on("simdjson@3:")
    depends_on("python@3.10:", type=("build", "run"))
    depends_on("librsvg", type="run")
    depends_on("doctest@2.4.9:", type="build", when="+tests")
    depends_on("py-torch@2.7:2.11+distributed")
    depends_on("py-torch~cuda", when="~cuda")
    depends_on("py-torch+cuda", when="+cuda")
    depends_on("nccl", when="+cuda")
    depends_on("cuda", when="+cuda")
    depends_on("patchelf", type="build")

    @property
    def build_targets(self):
        spec, torch = self.spec, self.spec["py-torch"].prefix
        words = {
            # Spack's compiler wrapper sets the target.
            "CXX": "c++", "MARCH": "", "DOWNLOAD": "no", "NICE": "",
            "MPICXX": spec["mpi"].mpicxx,
            "LIBTORCH": join_path(torch, spec["python"].package.platlib, "torch"),
            "HDF5_DIR": spec["hdf5"].prefix, "BOOST_ROOT": spec["boost"].prefix, "FMT_ROOT": spec["fmt"].prefix,
            "JSON_ROOT": spec["nlohmann-json"].prefix, "OPENSSL_ROOT": spec["openssl"].prefix,
            "ZLIB_ROOT": spec["zlib"].prefix, "SIMDJSON_ROOT": spec["simdjson"].prefix,
            "USE_CUDA": "1" if spec.satisfies("+cuda") else "0",
        }  # fmt: skip
        if spec.satisfies("+cuda"):
            words["CUDA_HOME"], words["NCCL_HOME"] = spec["cuda"].prefix, spec["nccl"].prefix
            if "none" not in spec.variants["cuda_arch"].value:
                words["CUDA_ARCHS"] = " ".join(spec.variants["cuda_arch"].value)
        if spec.satisfies("+tests"):
            words["DOCTEST_ROOT"] = spec["doctest"].prefix
        return [f"{name}={value}" for name, value in words.items()] + ["all"] + (["tests"] if spec.satisfies("+tests") else [])

    @property
    def install_targets(self):
        return [*(word for word in self.build_targets if "=" in word), f"PREFIX={self.prefix}", "install"]

    def check(self):
        if self.spec.satisfies("+tests"):
            Executable("tests/run")("serial")
