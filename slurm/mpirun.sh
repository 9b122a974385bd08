# The families of launchers named mpirun or mpiexec, and the options that each accepts. gradsync-sweep has the same in
# src/sweep/local_launcher.cpp; a test compares both. Source it; it defines, and does nothing.
# shellcheck shell=bash

# Prints open-mpi-4 (also 3), open-mpi-5 (also 6), hydra (MPICH, MVAPICH), intel or unknown.
mpirun_family() { # MPIRUN
  family_of_version "$("$1" --version 2>/dev/null </dev/null)"
}

family_of_version() { # WHAT `mpirun --version` PRINTS
  local first=${1%%$'\n'*}
  if [[ $first =~ ^[a-z.]+\ \((Open\ MPI|OpenRTE)\)\ ([0-9]+)\.[0-9]+ ]]; then
    case ${BASH_REMATCH[2]} in
      3 | 4) echo open-mpi-4 ;;
      5 | 6) echo open-mpi-5 ;;
      *) echo unknown ;;
    esac
  elif [[ $first == "HYDRA build details:" ]]; then
    echo hydra
  elif [[ $first =~ ^Intel\(R\)\ MPI\ Library\ for\ Linux\*\ OS,\ Version\ 20[0-9]{2} ]]; then
    echo intel
  else
    echo unknown
  fi
}

# The options beside -n, a word a line: ranks may outnumber cores, they are not bound, the launcher adds no messages, and
# a lost node is noticed after 20 s in place of 8 minutes. An unknown family gets none.
options_of_family() { # FAMILY
  case $1 in
    open-mpi-4)
      printf '%s\n' --oversubscribe --bind-to none --quiet --mca oob_tcp_keepalive_time 5 \
        --mca oob_tcp_keepalive_intvl 2 --mca oob_tcp_keepalive_probes 3
      ;;
    open-mpi-5)
      printf '%s\n' --oversubscribe --bind-to none --prtemca oob_tcp_keepalive_time 5 \
        --prtemca oob_tcp_keepalive_intvl 2 --prtemca oob_tcp_keepalive_probes 3
      ;;
    intel) printf '%s\n' -genv I_MPI_PIN 0 ;;
  esac
}

# The option that puts N ranks on each node, a word a line.
ranks_per_node_option() { # FAMILY N
  case $1 in
    open-mpi-*) printf '%s\n' --map-by "ppr:$2:node" ;;
    hydra | intel) printf '%s\n' -ppn "$2" ;;
  esac
}
