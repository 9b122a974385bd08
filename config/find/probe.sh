# SPDX-License-Identifier: BSD-3-Clause
# Ways of looking for a header or a library, and of writing down the result. For config/detect.
# shellcheck shell=bash
# shellcheck disable=SC2154  # config/detect defines what this uses

define() { printf '%s := %s\n' "$1" "${*:2}" >>"$makefile"; }

row() { # NAME STATE SCOPE VERSION WHERE-OR-FIX [PACKAGES] [ENVIRONMENT]
  printf '%s|%s|%s|%s|%s|%s|%s\n' "$1" "$2" "$3" "$4" "$5" "${6:-}" "${7:-}" >>"$rows"
}

# A dependency that pip can bring, into an environment of the suite's own.
missing_in_venv() { # NAME STATE SCOPE GIGABYTES FOLDER PIP-WORDS [OTHERWISE]
  row "$1" "$2" "$3" - "make deps (pip install $6 into $5)${7:+; or $7}" "" "$4 $5 $6"
}

# The line that fixes a missing dependency: one command where the system's packages have it.
fix_line() { # PACKAGES OTHERWISE
  if have apt-get; then
    printf '%s%s %s; or %s' "$(is_root || echo 'sudo ')" "$apt_install" "$1" "$2"
  else
    printf '%s' "$2"
  fi
}

missing() { # NAME STATE SCOPE PACKAGES OTHERWISE
  row "$1" "$2" "$3" - "$(fix_line "$4" "$5")" "$4"
}

# Prints "version|folder" for a header the compiler finds with the given flags; the version is what
# the preprocessor makes of EXPRESSION.
probe() { # HEADER EXPRESSION FLAGS...
  printf '#include <%s>\n@version %s\n' "$1" "$2" |
    "${cxx[@]}" -std=c++20 -x c++ -E "${@:3}" - 2>/dev/null |
    awk -v header="/$1" '
      /^# [0-9]+ "/ && folder == "" {
        split($0, part, "\"")
        at = length(part[2]) - length(header)
        if (at > 0 && substr(part[2], at + 1) == header) folder = substr(part[2], 1, at)
      }
      /^@version/ { after = 1; sub(/^@version */, "") }
      after && !/^#/ { gsub(/[" ]/, ""); version = version $0 }
      END { if (folder == "") exit 1; print version "|" folder }'
}

links() { # FLAGS...
  printf 'int main() {}\n' | "${cxx[@]}" -x c++ - -x none -o "$scratch/a.out" "$@" >/dev/null 2>&1
}

# -I becomes -isystem; /usr/include must not be named at all (it breaks #include_next).
system_includes() {
  local word
  for word in "$@"; do
    case $word in
      -I/usr/include) ;;
      -I*) printf -- '-isystem %s ' "${word#-I}" ;;
      -D* | -pthread) printf '%s ' "$word" ;;
    esac
  done
}

# The run-time path for every -L that the loader does not search by itself; stubs never.
with_rpath() {
  local word
  for word in "$@"; do
    printf '%s ' "$word"
    case $word in
      -L/usr/lib | -L/usr/lib/* | -L/usr/lib64 | -L/lib/* | *stubs*) ;;
      -L*) printf -- '-Wl,-rpath,%s ' "${word#-L}" ;;
    esac
  done
}

library_folder() { # PREFIX
  if [[ -d $1/lib64 && ! -d $1/lib ]]; then echo "$1/lib64"; else echo "$1/lib"; fi
}

# The conda environment whose compiler is in use. Its libraries are of that compiler's runtime.
conda_prefix() {
  local compiler
  compiler=$(command -v "${cxx[-1]}") || return 0
  [[ -z ${CONDA_PREFIX:-} || $compiler != "$CONDA_PREFIX"/* ]] || echo "$CONDA_PREFIX"
}

# Looks in the folder that VARIABLE names, or in the compiler's conda environment (and only there); else
# asks pkg-config, else relies on the compiler's own paths. Defines NAME_CFLAGS and NAME_LIBS; sets `found` to "version|folder".
find_library() { # NAME VARIABLE PKG-CONFIG-NAMES HEADER EXPRESSION LIBRARIES [FLAGS]
  local name=$1 prefix=${!2:-$(conda_prefix)} package header=$4 expression=$5 libs=$6 cflags="" extra=${7:-}
  if [[ -n $prefix ]]; then
    [[ $prefix == /usr ]] || cflags="-isystem $prefix/include"
    [[ -z $libs ]] || libs=$(with_rpath "-L$(library_folder "$prefix")")$libs
  else
    for package in $3; do
      if have pkg-config && pkg-config --exists "$package"; then
        # shellcheck disable=SC2046  # words are wanted
        cflags=$(system_includes $(pkg-config --cflags "$package"))
        # shellcheck disable=SC2046
        [[ -z $libs ]] || libs=$(with_rpath $(pkg-config --libs-only-L "$package"))$libs
        break
      fi
    done
  fi
  # shellcheck disable=SC2086  # flags are words
  if found=$(probe "$header" "$expression" $cflags $extra) && { [[ -z $libs ]] || links $cflags $libs; }; then
    define "${name}_CFLAGS" "$cflags $extra"
    define "${name}_LIBS" "$libs"
  else
    found=""
  fi
}

report_library() { # TITLE SCOPE PACKAGES VARIABLE
  if [[ -n $found ]]; then
    row "$1" ok "$2" "${found%%|*}" "${found#*|}"
  elif [[ -n ${!4:-} ]]; then
    row "$1" missing "$2" - "correct $4=${!4}, where it was not found, or unset it"
  else
    missing "$1" missing "$2" "$3" "$4=/its/prefix"
  fi
}

# As find_library, else the copy in a package from PyPI, whose prefix is FOLDER below site-packages.
find_library_or_pypi() { # NAME VARIABLE PKG-CONFIG-NAMES HEADER EXPRESSION LIBRARIES FOLDER
  local from_pypi
  find_library "${@:1:6}"
  if [[ -z $found && -z ${!2:-} ]]; then
    # shellcheck disable=SC2034  # find_library reads it by its name
    from_pypi=$(echo "$library_venv"/lib/python3*/site-packages/"$7")
    find_library "$1" from_pypi "" "${@:4:3}"
  fi
}

# A missing library comes from the system's packages where those can be installed, else from PyPI.
report_library_or_pypi() { # TITLE SCOPE PACKAGES VARIABLE
  if [[ -n $found || -n ${!4:-} ]] || { is_root && have apt-get; }; then
    report_library "$@"
  else
    missing_in_venv "$1" missing "$2" 1 "$library_venv" "$library_packages" "$4=/its/prefix"
  fi
}
