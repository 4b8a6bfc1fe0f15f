# SPDX-License-Identifier: MIT
"""ibv_devices and ibv_devinfo see the device, as one device, and real ones
beside it unless told otherwise; `skein run` starts programs as it says."""

import os
import re
import shutil

import stock
from harness import Case, built, run_cases, tool


def output(case, *argv, exits=0, env=None):
    process = case.start(list(argv), env=env)
    process.exits(exits)
    return process


def devices():
    with Case() as case:
        text = output(case, *stock.skein_run('ibv_devices')).text('out')
        guid = re.search(r'^\s+skein0\s+([0-9a-f]{16})$', text, re.M)
        assert guid, text
        again = output(case, *stock.skein_run('ibv_devices')).text('out')
        assert guid.group(1) in again, 'another process, another device?'
        # A locally administered EUI-64, of one device.
        assert int(guid.group(1)[:2], 16) & 3 == 2, guid.group(1)


def devinfo():
    with Case() as case:
        text = output(case, *stock.skein_run('ibv_devinfo', '-v')).text('out')
        for want in (r'hca_id:\s+skein0', r'node_guid:\s+\w{4}:\w{4}',
                     r'atomic_cap:\s+ATOMIC_HCA', r'state:\s+PORT_ACTIVE',
                     r'link_layer:\s+Ethernet', r'active_mtu:\s+4096',
                     r'GID\[\s*0\]:\s+.*RoCE v2'):
            assert re.search(want, text), f'no {want} in\n{text}'
        output(case, *stock.skein_run('ibv_devinfo', '-d', 'nothere'), exits=255)


def real_devices_stay():
    """Whatever the real library lists is listed after ours."""
    with Case() as case:
        # Without the kernel's modules it fails, and then there is none.
        alone = output(case, 'ibv_devices', exits=None)
        alone = alone.text('out').split('\n')[2:]
        both = output(case, tool(), 'run', '--verbs', '--', 'ibv_devices') \
            .text('out').split('\n')[2:]
        assert both[0].split()[0] == 'skein0', both
        assert [line.split() for line in both[1:]] == \
            [line.split() for line in alone], (alone, both)


def run_command():
    with Case() as case:
        output(case, *stock.skein_run('sh', '-c', 'exit 7'), exits=7)
        output(case, *stock.skein_run('./not-there'), exits=127)
        output(case, *stock.skein_run('/etc/passwd'), exits=126)
        output(case, tool(), 'run', '--verbs', exits=2)
        output(case, tool(), 'run', '--', exits=2)
        bad = output(case, *stock.skein_run('true'), exits=1,
                     env={'SKEIN_VERBS_LIB': '/nowhere/x.so'})
        assert 'SKEIN_VERBS_LIB' in bad.text('err'), bad.text()
        # A preload that is there stays, behind ours.
        text = output(case, *stock.skein_run('sh', '-c', 'echo $LD_PRELOAD'),
                      env={'LD_PRELOAD': 'libm.so.6'}).text('out')
        assert re.fullmatch(r'(\S+/)?libskein-verbs-front.so:libm.so.6', text), text


def folder_with_a_space():
    """The loader takes no such path as a preload; with a colon it takes none."""
    with Case() as case:
        for name, status in (('a folder', 0), ('a:folder', 1)):
            folder = os.path.join(case.folder, name)
            library = os.path.join(folder, os.path.basename(stock.LIBRARY))
            os.mkdir(folder)
            os.symlink(built(stock.LIBRARY), library)
            process = output(case, *stock.skein_run('ibv_devices'),
                             exits=status, env={'SKEIN_VERBS_LIB': library})
            assert ('skein0' in process.text('out')) == (status == 0)
            assert ('colon' in process.text('err')) == (status == 1)
            shutil.rmtree(folder)


if __name__ == '__main__':
    stock.need('ibv_devices', 'ibv_devinfo')
    run_cases(devices, devinfo, real_devices_stay, run_command,
              folder_with_a_space)
