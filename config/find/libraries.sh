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
  [[ $march != native ]] || resolved=$("${cxx[@]}" -march=native -Q --help=target 2>/dev/null |
    awk '$1 == "-march=" { print $2; exit }') || true
  row "target CPU" ok info "${march:-baseline}" "${resolved:+is $resolved here; }MARCH= changes it"
}

# Sets mpi_cflags and mpi_libs to what the compiler wrapper adds; both are empty if it is none.
ask_mpicxx() {
  local compile="" link=""
  mpi_cflags="" mpi_libs=""
  have "$wanted_mpicxx" || return 0
  if compile=$("$wanted_mpicxx" --showme:compile 2>/dev/null); then # Open MPI
    link=$("$wanted_mpicxx" --showme:link 2>/dev/null) || return 0
  elif compile=$("$wanted_mpicxx" -show 2>/dev/null); then # MPICH: the whole command line
    link=$(printf '%s\n' "$compile" | tr ' ' '\n' | grep -E '^-(L|l|Wl)' | tr '\n' ' ') || true
  fi
  # shellcheck disable=SC2086  # flags are words
  mpi_libs=$(with_rpath $link)
  # shellcheck disable=SC2086
  mpi_cflags="$(system_includes $compile)-DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX"
}

find_mpi() {
  local version
  ask_mpicxx
  mpirun=$(dirname "$(command -v "$wanted_mpicxx" || echo /none/)")/mpirun
  have "$mpirun" || mpirun=$(command -v mpirun || true)
  # shellcheck disable=SC2086
  if [[ -n $mpi_libs ]] && found=$(probe mpi.h MPI_VERSION.MPI_SUBVERSION $mpi_cflags) &&
    links $mpi_libs; then
    version=$({ "$mpirun" --version 2>/dev/null || true; } | head -1)
    define MPI_CFLAGS "$mpi_cflags"
    define MPI_LIBS "$mpi_libs"
    row MPI ok build "${found%%|*}" "$(command -v "$wanted_mpicxx")${version:+ ($version)}"
  elif [[ -n ${MPICXX:-} ]]; then
    row MPI missing build - "correct MPICXX=$MPICXX, which is no MPI compiler wrapper, or unset it"
  else
    missing MPI missing build libopenmpi-dev "module load openmpi, or MPICXX=/path/to/mpicxx"
  fi
  define MPIRUN "$mpirun"
  if [[ -n $mpirun ]]; then
    row mpirun ok demo - "$mpirun"
  else
    missing mpirun missing demo openmpi-bin "put mpirun on the PATH"
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
  find_headers BOOST BOOST_ROOT "" boost/version.hpp BOOST_VERSION boost
  found=${found:+$(boost_version)|${found#*|}}
  report_headers "Boost (headers)" build libboost-dev BOOST_ROOT
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
  find_headers JSON JSON_ROOT nlohmann_json nlohmann/json.hpp \
    NLOHMANN_JSON_VERSION_MAJOR.NLOHMANN_JSON_VERSION_MINOR.NLOHMANN_JSON_VERSION_PATCH nlohmann_json
  report_headers nlohmann-json build nlohmann-json3-dev JSON_ROOT
  find_library SSL OPENSSL_ROOT libcrypto openssl/evp.h OPENSSL_VERSION_STR -lcrypto
  report_library "OpenSSL crypto" build libssl-dev OPENSSL_ROOT
  find_library ZLIB ZLIB_ROOT zlib zlib.h ZLIB_VERSION -lz
  report_library zlib build zlib1g-dev ZLIB_ROOT
}
