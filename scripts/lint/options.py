#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every subcommand has a man page, and the page's options are those that its
--help lists: the same names and letters, with a value or without; and no page
speaks of an option that its command does not know.

    options.py SKEIN    (the program)
"""

import os
import re
import sys

import common

HELP = re.compile(r'^ {2,}(?:-(\w), )? *--([\w-]+)(=\S+)?(?: |$)', re.M)
COMMAND = re.compile(r'^  (\w+) {2,}\S', re.M)
TERM = re.compile(r'(?:\*\*-(\w)\*\*, )?\*\*\\--([\w-]+)\*\*(=| \*)?')
SYNOPSIS = re.compile(r'^\*\*(skein(?: [a-z]+)+)')
# All take --help, as skein(1) says; the others have a page that lists theirs.
ALL = {'help', 'version'}


def read(path):
    try:
        with open(path, encoding='utf-8') as file:
            return file.read()
    except FileNotFoundError:
        return ''


def ask(program, words):
    return common.run([program, *words, '--help'])[1]


def of_help(text):
    return {(short, name, bool(value))
            for short, name, value in HELP.findall(text) if name not in ALL}


def of_page(text):
    """Its options, and all that it speaks of."""
    section = text.partition('\n# OPTIONS\n')[2].partition('\n# ')[0]
    terms = re.findall(r'^(\*\*.*)\n: ', section, re.M)
    return ({(short, name, bool(value)) for line in terms
             for short, name, value in TERM.findall(line)},
            {name for _, name, _ in TERM.findall(text)} - ALL)


def called(text):
    """The words of the command: "kv serve"."""
    synopsis = text.partition('\n# SYNOPSIS\n')[2]
    match = SYNOPSIS.match(synopsis)
    return match.group(1).split()[1:] if match else []


def spelled(option):
    short, name, value = option
    return (f'-{short}, ' if short else '') + f'--{name}' + '=' * value


def check_page(name, text, helped):
    listed, spoken = of_page(text)
    known = {option[1] for option in helped}
    found = [f'docs/man/{name}: {spelled(option)} is not as --help has it'
             for option in sorted(listed - helped)]
    # of the same name, once
    named = {option[1] for option in listed}
    found += [f'docs/man/{name}: says nothing of {spelled(option)}'
              for option in sorted(helped - listed) if option[1] not in named]
    return found + [f'docs/man/{name}: speaks of --{word}, which is none'
                    for word in sorted(spoken - known - named)]


def check(tree, help_of):
    found = []
    main_page = read(os.path.join(tree, 'docs', 'man', 'skein.1.md'))
    commands = COMMAND.findall(help_of(tree, []))
    if not commands:
        found.append('skein --help: lists no commands')
    for command in commands:
        name = f'skein-{command}.1.md'
        text = read(os.path.join(tree, 'docs', 'man', name))
        if not text:
            found.append(f'skein {command}: has no docs/man/{name}')
            continue
        if f'**skein-{command}**(1)' not in main_page:
            found.append(f'docs/man/skein.1.md: does not name skein-{command}')
        words = called(text)
        if words[:1] != [command]:
            found.append(f'docs/man/{name}: its synopsis is of another')
            continue
        found += check_page(name, text, of_help(help_of(tree, words)))
    return found


def fake(tree, words):
    return read(os.path.join(tree, 'help', '-'.join(words) or 'skein'))


def case(what, expected, old='', new='', path='docs/man/skein-a.1.md'):
    files = {
        'help/skein': 'commands:\n  a        does\n',
        'help/a-b': 'options:\n  -s, --size=N    how\n      --all    all\n'
                    '      --note=WORD says it: --none\n'
                    '  -h, --help      this text\n',
        'docs/man/skein.1.md': '# SEE ALSO\n**skein-a**(1)\n',
        'docs/man/skein-a.1.md':
            '# NAME\n\n# SYNOPSIS\n**skein a b** [**\\--all**]\n\n# OPTIONS\n'
            '**-s**, **\\--size**=*N*\n: How. See\n**\\--all**.\n\n'
            '**\\--all**, **\\--note** *WORD*\n: All.\n\n# EXIT STATUS\n0\n'}
    assert old in files[path]
    files[path] = files[path].replace(old, new) if old else files[path]
    return what, files, expected


CASES = [
    case('the same options pass', None),
    case('one that the page has not is seen', 'nothing of -s, --size=',
         '**-s**, **\\--size**=*N*\n: How.', ': How.'),
    case('and one that the program has not', '--size= is not as',
         '  -s, --size=N    how\n', '', 'help/a-b'),
    case('and another letter', '-t, --size= is not as', '**-s**', '**-t**'),
    case('and a value that is none', '-s, --size is not as', '=*N*', ''),
    case('and one that is only spoken of', 'speaks of --every',
         'See\n**\\--all**', 'See\n**\\--every**'),
    case('and a page that is not there', 'has no docs/man/skein-b.1.md',
         '  a        does\n', '  a        does\n  b        too\n',
         'help/skein'),
    case('and a program that says nothing', 'lists no commands',
         '  a        does\n', '', 'help/skein'),
    case('and a page that nobody finds', 'does not name skein-a',
         '**skein-a**(1)', '', 'docs/man/skein.1.md'),
]

if __name__ == '__main__':
    WORDS = [word for word in sys.argv[1:] if word != '--self-test']
    if WORDS:
        del sys.argv[1:]
        PROGRAM = os.path.abspath(WORDS[0])
        common.main(lambda tree: check(
            tree, lambda _, words: ask(PROGRAM, words)), CASES, 'options')
    common.main(lambda tree: check(tree, fake), CASES, 'options')
