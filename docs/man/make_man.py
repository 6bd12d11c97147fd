#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the manual pages of section 3 from the comments of the public headers.

usage: make_man.py --list HEADER...              file names, one a line, that would be made
       make_man.py --out DIR --version V HEADER...
       make_man.py --env docs/env.md --out FILE --version V    sluice-env(7), from the page of variables
       make_man.py --config PRINTED --out FILE --version V     sluiced.conf(5), from what sluiced --print-config prints

Each comment that stands before a function becomes a page; functions that follow without a comment of
their own share it. The labels at line starts (Shapes, Units, Memory, Order, Errors, Source) become
sections. So the headers stay the one place where the interface is described.
"""
import argparse
import os
import re
import sys

LABELS = ["Shapes", "Units", "Memory", "Order", "Errors", "Source"]
# What a page about FUNCTION should show besides: the structure it is about.
STRUCTURES = {"sluice_config_init": "sluice_config", "sluice_config_init_sized": "sluice_config",
              "sluice_unique_id_create": "sluice_unique_id"}


def comment_text(comment):
    """The lines of a /** comment */ without its stars."""
    body = comment[3:-2]
    return "\n".join(re.sub(r"^\s*\*? ?", "", line).rstrip() for line in body.split("\n")).strip()


def functions(header):
    """Yields (comment text, [(name, prototype), ...]) for each documented run of functions."""
    text = open(header, encoding="utf-8").read()
    token = re.compile(r"/\*\*.*?\*/|^SLUICE_API[^;]*;|^static inline [^;{]*\{.*?^\}|^(?:struct|enum)\s[^;{]*\{.*?\};", re.S | re.M)
    comment, page = None, None
    for match in token.finditer(text):
        piece = match.group(0)
        if piece.startswith("/**"):
            if page:
                yield page
            comment, page = comment_text(piece), None
        elif piece.startswith(("SLUICE_API", "static inline")):
            prototype = re.sub(r"^SLUICE_API |^static inline ", "", re.sub(r"\s+", " ", piece))
            prototype = prototype.split(" {")[0].rstrip(";") + ";"
            name = re.search(r"(\w+)\s*\(", prototype).group(1)
            if page:
                page[1].append((name, prototype))
            else:
                page = (comment, [(name, prototype)])
        else:
            if page:
                yield page
            comment, page = None, None
    if page:
        yield page


def sections(text):
    """Splits a comment into its description and the labelled parts."""
    text = re.sub(r"(?<=[.:)]) (%s): " % "|".join(LABELS), r"\n\1  ", text)
    parts, label = {"": []}, ""
    for line in text.split("\n"):
        match = re.match(r"(%s)\s\s*(.*)" % "|".join(LABELS), line)
        if match and (re.match(r"\w+\s\s", line) or match[1] not in parts):
            label, line = match[1], match[2]
        parts.setdefault(label, []).append(line.strip())
    return {key: "\n".join(lines).strip() for key, lines in parts.items()}


def structure(headers, name):
    for header in headers:
        match = re.search(r"^struct %s \{.*?^\};" % name,
                          open(header, encoding="utf-8").read(), re.S | re.M)
        if match:
            return re.sub(r"/\*\*<", "/*", match.group(0))
    return None


def roff(text):
    """Escapes what roff would take for its own."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...").replace("'", "\\(aq")
    return "\n".join("\\&" + line if line.startswith((".", "'")) else line
                     for line in text.split("\n"))


def prose(text):
    """Paragraphs; a name of ours is set in bold."""
    out = []
    for paragraph in re.split(r"\n\s*\n", text):
        flat = roff(re.sub(r"\s+", " ", paragraph.strip()))
        out.append(re.sub(r"\bsluice_\w+\(\)", lambda m: "\\fB%s\\fP()" % m[0][:-2], flat))
    return "\n.PP\n".join(out)


def summary(text):
    first = re.split(r"(?<=[.;:])\s", re.sub(r"\s+", " ", text))[0].rstrip(".;:")
    return first[0].lower() + first[1:] if first[:1].isupper() and not first[:2].isupper() else first


def synopsis(prototype):
    """One argument list, broken where it is long."""
    if len(prototype) <= 72:
        return prototype
    head, arguments = prototype.split("(", 1)
    lines, line = [], ""
    for argument in arguments.split(", "):
        if line and len(line) + len(argument) > 62:
            lines.append(line)
            line = ""
        line += argument + ", "
    lines.append(line[:-2])
    return head + "(\n    " + "\n    ".join(part.rstrip() for part in lines)


def return_value(prototype, parts):
    if prototype.startswith("void "):
        return "None; it cannot fail."
    if "Errors" not in parts or not prototype.startswith("int "):
        return None
    value = "0, or a negative errno value with a sentence about it in \\fBsluice_last_error\\fP()."
    given = re.findall(r"\*\*(\w+)", prototype)
    if given:
        value += " After a failure of the call *%s is NULL." % given[0]
    if re.search(r"void \*out\b", prototype):
        value += " When the operation fails, then or later, elements of out may have been written in part."
    return value


def page(comment, names, header, headers, version):
    parts = sections(comment)
    first = names[0][0]
    out = ['.\\" SPDX-License-Identifier: Apache-2.0',
           '.TH %s 3 "" "Sluice %s" "Sluice manual"' % (first, version), ".SH NAME",
           "%s \\- %s" % (", ".join(name for name, _ in names), roff(summary(parts[""]))),
           ".SH SYNOPSIS", ".nf", "#include <sluice/%s>" % os.path.basename(header), ".PP"]
    out += [roff(synopsis(prototype)) for _, prototype in names]
    out += [".fi", ".SH DESCRIPTION", prose(parts[""])]
    shown = structure(headers, STRUCTURES.get(first, "")) if first in STRUCTURES else None
    if shown:
        out += [".PP", ".nf", ".RS 4", roff(shown), ".RE", ".fi"]
    for label in ["Shapes", "Units", "Memory", "Order"]:
        if label in parts:
            out += [".SH " + label.upper(), prose(parts[label])]
    value = return_value(names[0][1], parts)
    if value:
        out += [".SH RETURN VALUE", value]
    if "Errors" in parts:
        out += [".SH ERRORS", prose(parts["Errors"])]
    elif "sluice_req **req" in names[0][1]:
        out += [".SH NOTES", "Units, lending of memory, order and errors are those of",
                ".BR sluice_allreduce (3)."]
    out += [".SH SEE ALSO"]
    if "Source" in parts:
        out += [prose(parts["Source"]), ".PP"]
    out += [".BR sluice (7),", ".BR sluice\\-bench (1)"]
    return "\n".join(out) + "\n"


def mono(text):
    """Prose with `code` in bold."""
    return re.sub(r"`([^`]*)`", r"\\fB\1\\fP", roff(text))


def env_page(path, version):
    """Of docs/env.md, which is printed from the table of variables: an introduction, and a part for each."""
    intro, *parts = re.split(r"^## ", open(path, encoding="utf-8").read(), flags=re.M)
    out = ['.\\" SPDX-License-Identifier: Apache-2.0',
           '.TH sluice\\-env 7 "" "Sluice %s" "Sluice manual"' % version, ".SH NAME",
           "sluice\\-env \\- environment variables of Sluice", ".SH DESCRIPTION"]
    paragraphs = [text for text in intro.split("\n\n")[1:] if text.strip()]
    # The last one is about how that page is made.
    out.append("\n.PP\n".join(mono(" ".join(text.split())) for text in paragraphs[:-1]))
    for part in parts:
        name, text = part.split("\n", 1)
        kind, *rest = text.strip().split("\n")
        out += [".TP", ".B %s" % name, mono(kind)] + ([".br", mono(" ".join(rest))] if rest else [])
    out += [".SH SEE ALSO", ".BR sluice (7),", ".BR sluice\\-bench (1)"]
    return "\n".join(out) + "\n"


def config_page(path, version):
    """Of what sluiced --print-config prints, from its table of keys: comments and "#key = default" in [sections]."""
    out = ['.\\" SPDX-License-Identifier: Apache-2.0',
           '.TH sluiced.conf 5 "" "Sluice %s" "Sluice manual"' % version, ".SH NAME",
           "sluiced.conf \\- configuration of the node agent", ".SH DESCRIPTION",
           "Sections in brackets, and a key with its value a line. A line that begins with # is a comment.",
           "What is unknown, no value of its key or out of its range is refused with its line, and half a file counts for nothing.",
           ".BR \"sluiced \\-\\-print\\-config\" \" prints a file of all keys that changes nothing; \" \"sluiced \\-\\-check\" \" says what is wrong with one.\""]
    comments = []
    for line in open(path, encoding="utf-8").read().splitlines():
        key = re.match(r"#(\w+) = ?(.*)$", line)
        if line.startswith("["):
            out.append(".SH [%s]" % roff(line.strip("[]")))
        elif key:
            out += [".TP", "\\fB%s\\fP = %s" % (roff(key[1]), roff(key[2]) or "(nothing)")] + [roff(text) for text in comments]
            comments = []
        elif line.startswith("# "):
            comments.append(line[2:])
        elif line:
            sys.exit("%s: this line is no comment, section or key: %s" % (path, line))
    out += [".SH FILES", "/etc/sluiced.conf", ".SH SEE ALSO", ".BR sluiced (8)"]
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--out")
    parser.add_argument("--version", default="")
    parser.add_argument("--env")
    parser.add_argument("--config")
    parser.add_argument("headers", nargs="*")
    args = parser.parse_args()
    if args.env or args.config:
        with open(args.out, "w", encoding="utf-8") as file:
            file.write(env_page(args.env, args.version) if args.env else config_page(args.config, args.version))
        return
    for header in args.headers:
        for comment, names in functions(header):
            if comment is None:
                sys.exit("%s: %s has no comment to make a page of" % (header, names[0][0]))
            for i, (name, _) in enumerate(names):
                if args.list:
                    print(name + ".3")
                    continue
                text = page(comment, names, header, args.headers, args.version) if i == 0 \
                    else ".so man3/%s.3\n" % names[0][0]
                with open(os.path.join(args.out, name + ".3"), "w", encoding="utf-8") as file:
                    file.write(text)


main()
