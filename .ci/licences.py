#!/usr/bin/env python3
"""Holds the licences of all dependencies against a list: permissive ones, and MPL-2.0 for unmodified dependencies.

    python3 .ci/licences.py

Reads `cargo metadata`. An expression passes if one side of every OR, and all sides of every AND, are on the list.
"""
import json
import re
import subprocess
import sys

ALLOWED = {
    "MIT", "MIT-0", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Zlib",
    "Unicode-3.0", "CC0-1.0", "0BSD", "BSL-1.0", "Unlicense", "MPL-2.0",
}
# later versions of this crate are AGPL
PINNED = {"evalexpr": "11.3."}


def passes(expression):
    """SPDX expressions with AND, OR, WITH and parentheses; `/` is the old way to write OR."""
    tokens = re.findall(r"\(|\)|[^\s()]+", expression.replace("/", " OR "))
    at = 0

    def alternative():
        nonlocal at
        result = conjunction()
        while at < len(tokens) and tokens[at] == "OR":
            at += 1
            result = conjunction() or result
        return result

    def conjunction():
        nonlocal at
        result = licence()
        while at < len(tokens) and tokens[at] == "AND":
            at += 1
            result = licence() and result
        return result

    def licence():
        nonlocal at
        if tokens[at] == "(":
            at += 1
            result = alternative()
            at += 1
            return result
        name = tokens[at]
        at += 1
        if at < len(tokens) and tokens[at] == "WITH":
            name += f" WITH {tokens[at + 1]}"
            at += 2
        return name in ALLOWED

    return alternative()


def main():
    metadata = json.loads(subprocess.check_output(["cargo", "metadata", "--format-version", "1", "--locked"]))
    wrong = []
    for package in metadata["packages"]:
        name, version, licence = package["name"], package["version"], package["license"]
        if package["source"] is None:
            continue
        if not licence or not passes(licence):
            wrong.append(f"{name} {version}: {licence}")
        if name in PINNED and not version.startswith(PINNED[name]):
            wrong.append(f"{name} {version}: only {PINNED[name]}x may be used")
    for line in wrong:
        print(f"licence not allowed: {line}", file=sys.stderr)
    print(f"licences: {len(metadata['packages'])} packages, {len(wrong)} not allowed")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
