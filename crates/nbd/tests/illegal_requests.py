#!/usr/bin/python3
"""Sends a server what it must refuse, with libnbd (strict mode off) and with bare sockets.

usage: illegal_requests.py SOCKET

The export must be writable, 64 MiB large, with sectors of 4096 bytes. Checks the error of every request, and that
the connection survives where it should and the server always does. Prints one line, exits 0 when all is well.
"""

import errno
import os
import random
import socket
import struct
import sys

import nbd

PATH = sys.argv[1]
URI = "nbd+unix:///?socket=" + PATH
SIZE = 64 << 20
MIB = 1 << 20
checks = 0


def check(condition, what):
    global checks
    checks += 1
    if not condition:
        sys.exit("FAILED: " + what)


def connect(structured=True):
    h = nbd.NBD()
    h.set_strict_mode(0)
    h.set_handshake_flags(nbd.HANDSHAKE_FLAG_MASK)
    h.set_request_structured_replies(structured)
    if structured:
        h.add_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
    h.connect_uri(URI)
    return h


def refused(h, expected, what, call, *arguments):
    try:
        call(*arguments)
    except nbd.Error as error:
        name = errno.errorcode.get(error.errnum, error.errnum)
        check(error.errnum == expected, f"{what}: {name}, not {errno.errorcode[expected]}")
    else:
        check(False, f"{what}: not refused")
    check(h.aio_is_ready(), f"{what}: the connection is gone")
    check(h.pread(4096, 8192) == b"\x5a" * 4096, f"{what}: data changed")


def with_libnbd(structured):
    h = connect(structured)
    check(h.get_size() == SIZE, "the size")
    check(h.get_block_size(nbd.SIZE_MINIMUM) == 4096, "the minimum block size")
    check(h.get_block_size(nbd.SIZE_MAXIMUM) == 32 * MIB, "the maximum block size")
    h.pwrite(b"\x5a" * 4096, 8192)
    einval, enospc = errno.EINVAL, errno.ENOSPC

    block, big = bytes(4096), bytes(32 * MIB + 4096)
    refused(h, einval, "misaligned write", h.pwrite, block, 8191)
    refused(h, einval, "misaligned write of a sector", h.pwrite, bytes(512), 8192)
    refused(h, einval, "misaligned read", h.pread, 512, 8192)
    refused(h, einval, "misaligned trim", h.trim, 4096, 8704)
    refused(h, einval, "misaligned zero", h.zero, 512, 8192)
    refused(h, einval, "misaligned cache", h.cache, 512, 8192)
    refused(h, enospc, "write past the end", h.pwrite, block, SIZE)
    refused(h, enospc, "write across the end", h.pwrite, bytes(8192), SIZE - 4096)
    refused(h, enospc, "write far out", h.pwrite, block, (1 << 63) - 8192)
    refused(h, einval, "read past the end", h.pread, 4096, SIZE)
    refused(h, einval, "read across the end", h.pread, 8192, SIZE - 4096)
    refused(h, einval, "trim past the end", h.trim, 4096, SIZE)
    refused(h, einval, "cache past the end", h.cache, 4096, SIZE)
    refused(h, enospc, "zero past the end", h.zero, 8192, SIZE - 4096)
    refused(h, einval, "empty write", h.pwrite, b"", 8192)
    refused(h, einval, "empty read", h.pread, 0, 8192)
    refused(h, einval, "empty trim", h.trim, 0, 8192)
    refused(h, einval, "oversized write", h.pwrite, big, 0)
    refused(h, einval, "oversized read", h.pread, len(big), 0)
    for flag in (2, 8, 16, 64, 0x4000):
        refused(h, einval, f"read with flag {flag}", h.pread, 4096, 8192, flag)
        refused(h, einval, f"write with flag {flag}", h.pwrite, block, 8192, flag)
        refused(h, einval, f"flush with flag {flag}", h.flush, flag)
        if flag != 8:
            refused(h, einval, f"trim with flag {flag}", h.trim, 4096, 8192, flag)
    extents = lambda *_: 0
    if structured:
        refused(h, errno.EOVERFLOW, "oversized read in one piece", h.pread, len(big), 0, nbd.CMD_FLAG_DF)
        refused(h, einval, "block status past the end", h.block_status, 4096, SIZE, extents)
        refused(h, einval, "misaligned block status", h.block_status, 100, 0, extents)
    else:
        refused(h, einval, "block status of simple replies", h.block_status, 4096, 0, extents)
    h.shutdown()


def greet(stream, flags=3):
    check(stream.recv(18, socket.MSG_WAITALL).startswith(b"NBDMAGICIHAVEOPT"), "the greeting")
    stream.sendall(struct.pack(">I", flags))


def bare():
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(20)
    stream.connect(PATH)
    return stream


def bare_session():
    stream = bare()
    greet(stream)
    stream.sendall(b"IHAVEOPT" + struct.pack(">II", 1, 0))
    stream.recv(10, socket.MSG_WAITALL)
    return stream


def request(command, flags=0, offset=0, length=0, magic=0x25609513):
    return struct.pack(">IHHQQI", magic, flags, command, 42, offset, length)


def reply(stream):
    magic, error, cookie = struct.unpack(">IIQ", stream.recv(16, socket.MSG_WAITALL))
    check(magic == 0x67446698 and cookie == 42, "a simple reply")
    return error


def is_closed(stream):
    try:
        while data := stream.recv(65536):
            del data
        return True
    except ConnectionError:
        return True
    except socket.timeout:
        return False


def with_sockets():
    stream = bare_session()
    for command in (8, 9, 255, 0x7FFF, 0xFFFF):
        stream.sendall(request(command, 0xFFFF))
        check(reply(stream) == errno.EINVAL, f"unknown command {command}")
    stream.sendall(request(0, offset=(1 << 64) - 4096, length=8192))
    check(reply(stream) == errno.EINVAL, "a read that wraps around")
    stream.sendall(request(1, offset=(1 << 64) - 4096, length=4096) + bytes(4096))
    check(reply(stream) == errno.ENOSPC, "a write at the end of numbers")
    stream.sendall(request(3))
    check(reply(stream) == 0, "a flush after all that")

    stream = bare_session()
    stream.sendall(request(1, length=0xFFFFFFFF))
    check(is_closed(stream), "a write of 4 GiB closes")
    stream = bare_session()
    stream.sendall(request(0, length=4096, magic=0x25609514))
    check(is_closed(stream), "a bad magic closes")
    stream = bare_session()
    stream.sendall(request(1, length=4096) + b"half")
    stream.close()
    stream = bare_session()
    stream.sendall(request(0, length=32 * MIB) * 100)
    stream.close()

    dice = random.Random(1)
    for greeted in (False, True, None):
        for _ in range(100):
            stream = bare_session() if greeted is None else bare()
            if greeted:
                greet(stream)
            try:
                stream.sendall(dice.randbytes(dice.randrange(1, 5000)))
                stream.shutdown(socket.SHUT_WR)
            except ConnectionError:
                pass
            check(is_closed(stream), "garbage closes")


with_libnbd(True)
with_libnbd(False)
with_sockets()
h = connect()
check(h.pread(4096, 8192) == b"\x5a" * 4096, "the data is still there")
h.shutdown()
print(f"ok: {checks} checks")
