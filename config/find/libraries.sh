# SPDX-License-Identifier: BSD-3-Clause
# The compiler, MPI and the libraries with headers. For config/detect.
# shellcheck shell=bash
# shellcheck disable=SC2154  # config/detect defines what this uses

find_compiler() {
  if printf '#include <span>\n#include <semaphore>\n' |
    "${cxx[@]}" -std=c++20 -x c++ -fsyntax-only - 2>/dev/null; then
    row "C++20 compiler" ok build "$("${cxx[@]}" -dumpfullversion -dumpversion)" \
      "$(command -v "${cxx[-1]}")"
  else
    missing "C++20 compiler" missing build g++ "CXX=/path/to/g++ (11 or newer)"
  fi
  local march=${MARCH-native} resolved=""
  if have "${cxx[-1]}" && ! "${cxx[@]}" ${march:+"-march=$march"} -x c++ -E - </dev/null >/dev/null 2>&1; then
    row "target CPU" missing build - "${cxx[*]} has no -march=$march: correct MARCH=$march; native, x86-64-v3"
    return
  fi
  [[ $march != native ]] || resolved=$("${cxx[@]}" -march=native -Q --help=target 2>/dev/null |
    awk '$1 == "-march=" { print $2; exit }') || true
  row "target CPU" ok info "${march:-baseline}" "${resolved:+is $resolved here; }MARCH= changes it"
}

# Sets mpi_cflags and mpi_libs to what the compiler wrapper adds; both are empty if it is none.
ask_mpicxx() {
  local compile="" link=""
  mpi_cflags="" mpi_libs=""
  have "$wanted_mpicxx" || return 0
  if compile=$(wrapper_words --showme:compile); then # Open MPI
    link=$(wrapper_words --showme:link) || return 0
  elif compile=$(wrapper_words --cray-print-opts=cflags); then # Cray's CC
    link=$(wrapper_words --cray-print-opts=libs) || return 0
  elif compile=$(wrapper_words -compile-info) || compile=$(wrapper_words -show); then # MPICH, Intel: a whole command
    link=$(wrapper_words -link-info) || link=$compile
  fi
  # shellcheck disable=SC2046,SC2086  # flags are words
  mpi_libs=$(with_rpath $(printf '%s\n' $link | grep -E '^-(L|l|Wl)' || true))
  # shellcheck disable=SC2086
  mpi_cflags="$(system_includes $compile)-DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX"
}

# What the wrapper prints for a question, a word a line, without the quotes that Intel's has around paths. Its wheel
# from PyPI prints a placeholder for its folder where I_MPI_ROOT is not set.
wrapper_words() { # OPTION
  local text prefix
  text=$("$wanted_mpicxx" "$1" 2>/dev/null </dev/null) && [[ -n $text ]] || return 1
  prefix=$(realpath "$(dirname "$(command -v "$wanted_mpicxx")")/..")
  xargs -n 1 2>/dev/null <<<"${text//I_MPI_SUBSTITUTE_INSTALLDIR/$prefix}"
}

# The launcher beside the wrapper, with its suffix (mpicxx.mpich: mpirun.mpich), else the first on the PATH.
find_mpirun() {
  local wrapper candidate suffix=""
  wrapper=$(command -v "$wanted_mpicxx" || echo /none/mpicxx)
  [[ ${wrapper##*/} != *.* ]] || suffix=.${wrapper##*.}
  for candidate in "${wrapper%/*}"/mpirun{"$suffix",} mpirun "${wrapper%/*}"/mpiexec{"$suffix",} mpiexec; do
    if mpirun=$(command -v "$candidate"); then return; fi
  done
}

# open-mpi or another, by mpi.h and by the launcher: neither starts ranks of the other.
mpi_of_header() {
  # shellcheck disable=SC2086  # flags are words
  probe mpi.h OMPI_MAJOR_VERSION $mpi_cflags | sed -E 's/^[0-9].*/open-mpi/; s/^OMPI.*/other/'
}
mpi_of_launcher() { # MPIRUN
  case $("$1" --version 2>/dev/null </dev/null | head -n 1) in
    *"(Open MPI)"* | *"(OpenRTE)"*) echo open-mpi ;;
    HYDRA* | "Intel(R) MPI"*) echo other ;;
    *) echo unknown ;;
  esac
}

find_mpi() {
  local version made_for=unknown
  ask_mpicxx
  find_mpirun
  [[ -z $mpirun ]] || made_for=$(mpi_of_launcher "$mpirun")
  # shellcheck disable=SC2086
  if [[ -n $mpi_libs ]] && found=$(probe mpi.h MPI_VERSION.MPI_SUBVERSION $mpi_cflags) &&
    links $mpi_libs; then
    define MPI_CFLAGS "$mpi_cflags"
    define MPI_LIBS "$mpi_libs"
    row MPI ok build "${found%%|*}" "$(command -v "$wanted_mpicxx")"
  elif [[ -n ${MPICXX:-} ]]; then
    row MPI missing build - "correct MPICXX=$MPICXX, which is no MPI compiler wrapper, or unset it"
  else
    missing MPI missing build libopenmpi-dev "module load openmpi, or MPICXX=/path/to/mpicxx (Cray: MPICXX=CC)"
  fi
  define MPIRUN "$mpirun"
  if [[ -n $mpi_libs && $made_for != unknown && $made_for != "$(mpi_of_header)" ]]; then
    row mpirun missing demo - "put the mpirun of $(command -v "$wanted_mpicxx") first on the PATH: $mpirun is of another MPI"
  elif [[ -z $mpirun ]] && have srun; then
    row mpirun optional info - "srun starts ranks inside Slurm jobs; for other places put mpirun on the PATH"
  elif [[ -z $mpirun ]]; then
    missing mpirun missing demo openmpi-bin "put mpirun on the PATH"
  else
    version=$({ "$mpirun" --version 2>/dev/null || true; } | head -n 2 | grep -oE '[0-9]+(\.[0-9]+)+' | head -n 1) || true
    row mpirun ok demo "${version:--}" "$mpirun"
  fi
}

find_hdf5() {
  local version=H5_VERS_MAJOR.H5_VERS_MINOR.H5_VERS_RELEASE
  find_library HDF5 HDF5_DIR "hdf5-serial hdf5" hdf5.h $version "-lhdf5_hl -lhdf5"
  if [[ -z $found ]]; then # one that was built with MPI includes mpi.h
    find_library HDF5 HDF5_DIR hdf5 hdf5.h $version "-lhdf5_hl -lhdf5" "$mpi_cflags"
    [[ -z $found ]] || found+=" (built with MPI, so gradsync-report needs MPI's library too)"
  fi
  report_library HDF5 build "libhdf5-dev pkg-config" HDF5_DIR
}

find_boost() {
  find_library_or_pypi BOOST BOOST_ROOT "" boost/program_options.hpp BOOST_VERSION -lboost_program_options cmeel.prefix
  found=${found:+$(boost_version)|${found#*|}}
  report_library_or_pypi Boost build "libboost-program-options-dev libboost-math-dev" BOOST_ROOT
}

boost_version() { echo "$((${found%%|*} / 100000)).$((${found%%|*} / 100 % 1000))"; }

# Compiled once by its packager, not again in each of our files; as headers only where there is no
# library; else LibTorch's own copy, which 2.10 and later have.
find_fmt() {
  local torch_include=$torch/include code
  find_library FMT FMT_ROOT fmt fmt/core.h FMT_VERSION -lfmt
  [[ -n $found ]] || find_library FMT FMT_ROOT fmt fmt/core.h FMT_VERSION "" -DFMT_HEADER_ONLY
  if [[ -z $found && -z ${FMT_ROOT:-} ]]; then
    find_library FMT NO_ROOT "" fmt/core.h FMT_VERSION "" "-DFMT_HEADER_ONLY -isystem $torch_include"
  fi
  code=${found%%|*}
  found=${found:+$((code / 10000)).$((code / 100 % 100)).$((code % 100))|${found#*|}}
  if [[ -z $found && -z $torch ]] && ! { is_root && have apt-get; }; then
    missing_torch fmt "FMT_ROOT=/its/prefix"
  else
    report_library fmt build libfmt-dev FMT_ROOT
  fi
}

find_libraries() {
  find_hdf5
  find_boost
  find_fmt
  find_library_or_pypi JSON JSON_ROOT nlohmann_json nlohmann/json.hpp \
    NLOHMANN_JSON_VERSION_MAJOR.NLOHMANN_JSON_VERSION_MINOR.NLOHMANN_JSON_VERSION_PATCH "" pgm_build_deps/nlohmann_json
  report_library_or_pypi nlohmann-json build nlohmann-json3-dev JSON_ROOT
  find_library SSL OPENSSL_ROOT libcrypto openssl/evp.h OPENSSL_VERSION_STR -lcrypto
  report_library "OpenSSL crypto" build libssl-dev OPENSSL_ROOT
  find_library ZLIB ZLIB_ROOT zlib zlib.h ZLIB_VERSION -lz
  report_library zlib build zlib1g-dev ZLIB_ROOT
  find_library SIMDJSON SIMDJSON_ROOT simdjson simdjson.h SIMDJSON_VERSION -lsimdjson
  report_library simdjson build libsimdjson-dev SIMDJSON_ROOT
}
