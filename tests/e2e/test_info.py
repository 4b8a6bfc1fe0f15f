# SPDX-License-Identifier: MIT
"""`skein info`: the device under test is the one shown, JSON has the keys of its
manual page, and where nothing is usable it says so, with a fix, and fails."""

import json
import os
import resource

from harness import DEVICES, Case, Failure, run_cases, tool

TOP = {'usable', 'device', 'devices', 'verbs_error', 'system', 'test_hw',
       'findings', 'unknown_settings'}
OPENED = TOP | {'kind', 'name', 'why', 'port', 'gid', 'abilities', 'limits',
                'link', 'link_abilities'}
FAILED = TOP | {'error'}


def check(condition, what):
    if not condition:
        raise Failure(what)


def info(case, *args, status=0, env=None, limits=None, device=DEVICES.server):
    process = case.start([tool(), 'info', *args], device=device, env=env,
                         limits=limits)
    process.exits(status)
    return process


def shown(case, *args, **more):
    return json.loads(info(case, '--json', *args, **more).text('out'))


def as_json():
    with Case() as case:
        got = shown(case)
        check(set(got) == OPENED, f'keys: {sorted(got)}')
        kind = DEVICES.server.split(':')[0]
        check(got['usable'] and got['kind'] == kind, f'taken: {got["device"]}')
        check(got['port']['state'] == 'active', f'port: {got["port"]}')
        check(got['abilities']['fork'] in ('safe', 'guarded', 'unsafe'),
              f'fork: {got["abilities"]}')
        names = [d['device'] for d in got['devices']]
        check(got['device'] in names, f'{got["device"]} is not in {names}')
        check(got['system']['hugepages']['regions'] in
              ('huge', 'transparent', 'ordinary', 'none'), str(got['system']))
        if kind == 'verbs':
            listed(got)


def listed(got):
    """The list's chosen GID is the one that was taken."""
    entry = [d for d in got['devices'] if d['device'] == got['device']][0]
    gids = [g for p in entry['ports'] for g in p['gids'] if g['chosen']]
    check(len(gids) == 1, f'chosen: {gids}')
    check(gids[0]['index'] == got['gid']['index'] and gids[0]['here'],
          f'{gids[0]} is not {got["gid"]}')
    check(entry['ports'][0]['link_layer'] == 'Ethernet', str(entry))


def as_text():
    with Case() as case:
        text = info(case).text('out')
        for word in ('device', 'devices', 'abilities', 'limits', 'system',
                     'memlock', 'hugepages', 'large regions', 'make test-hw'):
            check(word in text, f'no {word} in: {text}')
        check(DEVICES.server in text, f'not {DEVICES.server}: {text}')


def without_dc():
    """What a pool costs on a device that has no DC."""
    with Case() as case:
        for mode, has in (('on', True), ('off', False)):
            env = {'SKEIN_SOFT_DC': mode}
            check(shown(case, device='soft', env=env)['abilities']['dc'] == has,
                  f'dc: {mode}')
            text = info(case, device='soft', env=env).text('out')
            check(('an RC QP for each node' in text) != has, f'{mode}: {text}')
        info(case, device='soft', env={'SKEIN_SOFT_DC': 'no'}, status=1)


def link():
    """Which way other hosts are reached, by SKEIN_LINK."""
    ways = {'auto': ('TCP 4791', 'UDP 4791', 'MTU'), 'udp': ('UDP 4791', 'MTU'),
            'tcp': ('TCP 4791', 'MTU 4096'), 'off': ('off',)}
    with Case() as case:
        for mode, words in ways.items():
            got = shown(case, device='soft', env={'SKEIN_LINK': mode})['link']
            check(all(word in got for word in words), f'{mode}: {got}')
            check(('TCP' in got, 'UDP' in got) ==
                  (mode in ('auto', 'tcp'), mode in ('auto', 'udp')),
                  f'{mode}: {got}')
        got = shown(case, device='soft', env={'SKEIN_LINK_PORT': '65535'})
        check('TCP 65535' in got['link'] and 'UDP 65535' in got['link'],
              got['link'])
        for port in '0', '65536', '4791x', '-1', ' 1':
            info(case, device='soft', env={'SKEIN_LINK_PORT': port}, status=1)
        key = os.path.join(case.folder, 'key')
        with open(key, 'w', encoding='ascii') as file:
            file.write('a key\n')
        os.chmod(key, 0o600)
        for clear in '0', '1':
            got = shown(case, device='soft', env={
                'SKEIN_LINK_KEY': key, 'SKEIN_LINK_CLEAR': clear})['link']
            check('sealed' in got and ('UDP' in got) == (clear == '1'), got)
        os.remove(key)
        got = shown(case, device='soft')
        near, far = got['abilities'], got['link_abilities']
        less = ('ordered_read', 'death_notice', 'dc')
        check(far == {**near, **dict.fromkeys(less, False)},
              f'{near}, far {far}')
        check(near['dc'], f'{near}')


def no_such_device():
    with Case() as case:
        process = info(case, '--json', device='verbs:nope', status=1)
        got = json.loads(process.text('out'))
        check(set(got) == FAILED, f'keys: {sorted(got)}')
        check(not got['usable'] and got['device'] is None, str(got))
        first = got['findings'][0]
        check(first['level'] == 'error' and first['fix'], str(first))
        check(len(process.text('err').strip().split('\n')) == 1,
              'one line: ' + process.text('err'))
        text = info(case, device='verbs:nope', status=1).text('out')
        check('fix:' in text, text)


def bad_settings():
    """Each value that no program can open with, in one look."""
    bad = {'SKEIN_WAIT': 'bla', 'SKEIN_LOG': 'blah', 'SKEIN_PATH_MTU': '77',
           'SKEIN_RETRY_TIMEOUT': '70', 'SKEIN_QPS': '0x',
           'SKEIN_RPC_RETURN': 'zz', 'SKEIN_RPC_RING': 'much',
           'SKEIN_RUN_WAIT': 'often', 'SKEIN_RUN_IDLE': '1 s',
           'SKEIN_RUN_POLLERS': '17', 'SKEIN_VERBS_BACK': 'heap,stack',
           'SKEIN_VERBS_DEVICES': 'foo', 'SKEIN_MAX_AQP': '-1',
           'SKEIN_STREAM_RING': '7', 'SKEIN_STREAM_MEM': '1K',
           'SKEIN_RPC_RESP_RING': '100G', 'SKEIN_RPC_WINDOW': '0',
           'SKEIN_RPC_BATCH': '1000000', 'SKEIN_RPC_MSG_MAX': '1G',
           'SKEIN_RPC_RESP_INLINE': '1G'}
    with Case() as case:
        process = info(case, '--json', env=bad, status=1)
        got = json.loads(process.text('out'))
        errors = [f for f in got['findings'] if f['level'] == 'error']
        said = sorted(f['text'].split(':')[0] for f in errors)
        check(said == sorted(f'{name}={value}' for name, value in bad.items()),
              str(errors))
        check(got['usable'] and got['error'], str(got))
        # whole, though it is long
        check(any(f['text'].startswith('SKEIN_MAX_AQP') and
                  f['text'].endswith('256)') for f in errors), str(errors))
        # soft alone has a link; it looks at it without a key, too
        info(case, env={'SKEIN_LINK_CLEAR': '2'}, status=1, device='soft')
        # the line that ends a program is whole, too
        process = case.start([tool(), 'perf', 'rpc', '--self', '--json'],
                             env={'SKEIN_RPC_RETURN': 'zz'},
                             device=DEVICES.server)
        process.exits(1)
        said = json.loads(process.text('out'))['error']
        check(said.endswith(')'), said)
        # with one wrong, the device is still the one under test
        got = shown(case, env={'SKEIN_QPS': '0x'}, status=1)
        check(len(got['findings']) >= 1 and got['device'], str(got))


def unknown_settings():
    """A name that nothing reads: one line each, and no failure."""
    names = {'SKEIN_DEVISE': 'SKEIN_DEVICE', 'SKEIN_rpc_ring': 'SKEIN_RPC_RING',
             'SKEIN_QP': 'SKEIN_QPS', 'SKEIN_XYZZY_PLUGH': None}
    with Case() as case:
        process = info(case, '--json', env=dict.fromkeys(names, '1'))
        got = {one['name']: one['meant'] for one in
               json.loads(process.text('out'))['unknown_settings']}
        check(got.items() >= names.items(), str(got))
        check(not {'SKEIN_LOG', 'SKEIN_DEVICE', 'SKEIN_SOFT_HARSH'} & set(got),
              str(got))
        for name, meant in names.items():
            end = f'; did you mean {meant}?' if meant else ''
            line = f'skein info: {name}: no such setting{end}'
            check(process.text('err').split('\n').count(line) == 1,
                  process.text('err'))


def closed():
    """Standard descriptors that are closed are not taken by what opens."""
    with Case() as case:
        for closed, words in (('>&-', ['info']), ('<&- >&- 2>&-', ['info']),
                              ('<&- >&- 2>&-',
                               ['perf', 'write', '--self', '-n', '20',
                                '--slice', '1ms'])):
            case.start(['sh', '-c', f'"$0" "$@" {closed}', tool(), *words],
                       device=DEVICES.server).exits(1)


def required():
    """--require fails rather than take another."""
    other = 'soft' if DEVICES.server.startswith('verbs') else 'verbs'
    with Case() as case:
        got = shown(case, f'--require={other}', status=1)
        check(not got['usable'] and got['findings'], str(got))
        kind = DEVICES.server.split(':')[0]
        check(shown(case, f'--require={kind}')['usable'], 'the same kind')
        said = info(case, '--require=foo', status=2).text('err')
        check('--require takes soft or verbs, not "foo"' in said, said)


def little_lockable_memory():
    with Case() as case:
        got = shown(case, limits=[(resource.RLIMIT_MEMLOCK, 65536)])
        check(got['limits']['memlock'] == 65536, str(got['limits']))
        said = any('RLIMIT_MEMLOCK is 64 KiB' in f['text']
                   for f in got['findings'])
        # Of no consequence where no memory is ever pinned.
        check(said == (len(got['devices']) > 1), str(got['findings']))


def little_address_space():
    """soft maps a gigabyte: it cannot, and says what would help."""
    if os.environ.get('ASAN_OPTIONS') or os.environ.get('TSAN_OPTIONS'):
        return  # a sanitizer cannot start in so little
    with Case() as case:
        process = info(case, '--json', device='soft', status=1,
                       limits=[(resource.RLIMIT_AS, 512 << 20)])
        got = json.loads(process.text('out'))
        check(not got['usable'], str(got))
        check(any('RLIMIT_AS is 512 MiB' in f['text'] and
                  'ulimit -v' in f['fix'] for f in got['findings']),
              str(got['findings']))


def small_files():
    """Its shared memory is files: an error, and no signal."""
    with Case() as case:
        process = info(case, '--json', device='soft', status=1,
                       limits=[(resource.RLIMIT_FSIZE, 100 << 10)])
        got = json.loads(process.text('out'))
        check('RLIMIT_FSIZE' in got['error'], str(got))
        check(any('RLIMIT_FSIZE is 100 KiB' in f['text'] and
                  'ulimit -f' in f['fix'] for f in got['findings']),
              str(got['findings']))
        process = case.start([tool(), 'perf', 'rpc', '--self', '--json'],
                             device='soft',
                             limits=[(resource.RLIMIT_FSIZE, 100 << 10)])
        process.exits(1)
        check('RLIMIT_FSIZE' in json.loads(process.text('out'))['error'],
              process.text('out'))


run_cases(as_json, as_text, bad_settings, unknown_settings, link, without_dc,
          no_such_device, required, closed,
          little_lockable_memory,
          little_address_space, small_files)
