#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What is installed is enough for others: a program finds it by pkg-config and by find_package, and every
# example compiles against it.
# usage: abi_install.sh SOURCE_ROOT BUILD_DIR
set -uo pipefail
root=$1 build=$2
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/port.sh
. "$(dirname "$0")/../port.sh"

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
meson install -C "$build" --no-rebuild --destdir "$dir/root" >"$dir/install.log" 2>&1 || {
    echo "not ok 1 - meson_install_succeeds"
    sed 's/^/# /' "$dir/install.log"
    echo "1..1"
    exit 1
}
prefix=$dir/root$(meson introspect --buildoptions "$build" |
    python3 -c 'import json,sys; print({o["name"]: o["value"] for o in json.load(sys.stdin)}["prefix"])')
pc=$(find "$prefix" -name sluice.pc)
libdir=$(dirname "$(dirname "$pc")")
cat >"$dir/user.c" <<'END'
#include <sluice/sluice.h>
#include <stdio.h>

int main(void)
{
    printf("%d %s\n", sluice_version(), sluice_version_string());
    return sluice_version() == SLUICE_VERSION_MAJOR * 10000 + SLUICE_VERSION_MINOR * 100 +
                                   SLUICE_VERSION_PATCH ? 0 : 1;
}
END

flags() {
    PKG_CONFIG_PATH=$(dirname "$pc") pkg-config --define-variable=prefix="$prefix" "$@" sluice
}

with_pkg_config() {
    # shellcheck disable=SC2046
    "${CC:-cc}" -std=c11 "$dir/user.c" $(flags --cflags --libs) -o "$dir/user" &&
        LD_LIBRARY_PATH=$libdir "$dir/user" >"$dir/version" &&
        [[ $(flags --modversion) == $(cut -d' ' -f2 "$dir/version") ]]
}

with_cmake() {
    mkdir -p "$dir/cmake"
    cat >"$dir/cmake/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.16)
project(user C)
find_package(Sluice 0.1 REQUIRED)
add_executable(user ../user.c)
target_link_libraries(user PRIVATE Sluice::sluice)
END
    # Ninja is what the project is built with; make need not be there.
    cmake -G Ninja -S "$dir/cmake" -B "$dir/cmake/build" -DCMAKE_PREFIX_PATH="$prefix" &&
        cmake --build "$dir/cmake/build" && "$dir/cmake/build/user"
}

# By every name that NCCL and RCCL open.
the_plugin_has_its_names() {
    local name
    for name in libnccl-net-sluice.so libnccl-net.so librccl-net-sluice.so librccl-net.so; do
        [[ -s $libdir/$name ]] || { echo "$name is not there"; return 1; }
    done
}

# A program written for the next version must not be given this one.
cmake_refuses_another_minor_version() {
    mkdir -p "$dir/later"
    sed 's/Sluice 0.1/Sluice 0.999/' "$dir/cmake/CMakeLists.txt" >"$dir/later/CMakeLists.txt"
    ! cmake -G Ninja -S "$dir/later" -B "$dir/later/build" -DCMAKE_PREFIX_PATH="$prefix"
}

# compile COMPILER... SOURCE: into $dir/bin.
compile() {
    local source=${!#} name
    name=$(basename "${source%.*}")
    # shellcheck disable=SC2046
    "${@:1:$#-1}" -Wall -Wextra -Werror "$source" $(flags --cflags --libs) -lm -o "$dir/bin/$name" ||
        { echo "does not compile: $source"; return 1; }
}

examples_compile() {
    local example failed=0
    mkdir -p "$dir/bin"
    for example in "$root"/examples/*."$1"; do
        compile "${@:2}" "$example" || failed=1
    done
    return "$failed"
}

# in_ranks SIZE PROGRAM: as anybody could start it, with three variables.
in_ranks() {
    local size=$1 program=$2 port rank failed=0 pids=()
    port=$(free_port)
    for ((rank = 0; rank < size; rank++)); do
        LD_LIBRARY_PATH=$libdir SLUICE_RANK=$rank SLUICE_SIZE=$size SLUICE_ROOT=127.0.0.1:$port \
            timeout 60 "$program" &
        pids+=($!)
    done
    for rank in "${!pids[@]}"; do
        wait "${pids[rank]}" || { echo "$program: rank $rank ended with status $?"; failed=1; }
    done
    return "$failed"
}

examples_run() {
    local program failed=0
    for program in "$dir"/bin/*; do
        case $program in
        */unique_id) LD_LIBRARY_PATH=$libdir timeout 60 "$program" 3 || failed=1 ;;
        *) in_ranks 4 "$program" || failed=1 ;;
        esac
    done
    return "$failed"
}

tap_case the_plugin_is_there_by_each_name_that_is_looked_for the_plugin_has_its_names
# With no other package's file to be found, as for users, who have no development packages.
without_other_packages() {
    PKG_CONFIG_PATH='' PKG_CONFIG_LIBDIR=$(dirname "$pc") pkg-config --define-variable=prefix="$prefix" \
        --cflags --libs sluice
}

tap_case a_program_finds_the_library_by_pkg_config with_pkg_config
tap_case pkg_config_needs_no_other_package without_other_packages
if command -v cmake >/dev/null; then
    tap_case a_program_finds_the_library_by_find_package with_cmake
    tap_case find_package_refuses_another_minor_version cmake_refuses_another_minor_version
else
    tap_skip a_program_finds_the_library_by_find_package "cmake is not installed"
    tap_skip find_package_refuses_another_minor_version "cmake is not installed"
fi
tap_case every_example_in_c_compiles_against_the_installed_library examples_compile c "${CC:-cc}" -std=c11 -D_DEFAULT_SOURCE
if command -v "${CXX:-c++}" >/dev/null; then
    tap_case every_example_in_cpp_compiles_against_the_installed_library examples_compile cpp "${CXX:-c++}" -std=c++17
else
    tap_skip every_example_in_cpp_compiles_against_the_installed_library "${CXX:-c++} is not installed"
fi
tap_case every_example_does_what_it_says_on_four_ranks examples_run
tap_done
