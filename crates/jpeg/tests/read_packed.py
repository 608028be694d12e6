"""Reads a packed image by docs/reference/packed-format.md alone: python read_packed.py TABLES FILE

Prints a line for each component: its number, its blocks a row, its rows of blocks, and the CRC-32 of all
coefficients as 16-bit numbers, little-endian, each block in rows, block after block, row after row of blocks.
"""

import functools
import itertools
import struct
import sys
import zlib

CAPS = [63, 63, 63, 63, 63, 54, 46, 38, 31, 24, 18, 13, 9, 5, 2, 0]
LEAST = [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 0]
BITS = [0, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 8, 8]
ESCAPE = 15
# Of each place in zigzag order its place in rows: diagonals, every other one upwards.
ZIGZAG = sorted(range(64), key=lambda p: (p // 8 + p % 8, (p // 8 if (p // 8 + p % 8) % 2 else p % 8)))


def check(condition, what):
    if not condition:
        raise ValueError(what)


def ceil(a, b):
    return -(-a // b)


def read_length(data, at):
    value = 0
    for shift in range(0, 28, 7):
        check(at < len(data), "the bytes end within a length")
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
    raise ValueError("a length of more than four bytes")


def read_tables(data):
    """Of each class its token distributions and those of types."""
    check(data[:8] == b"SKTABLE1", "tables of another version, or none")
    check(len(data) == 8 + 2 * 1032 * 16, "tables of a wrong length")
    shares = [data[at : at + 16] for at in range(8, len(data), 16)]
    for number, distribution in enumerate(shares):
        needed = distribution[ESCAPE:] if number % 1032 < 1024 else distribution
        check(sum(distribution) == 256 and 0 not in needed, "shares that do not add up")
    return [(shares[first : first + 1024], shares[first + 1024 : first + 1032]) for first in (0, 1032)]


@functools.cache
def lay_out(shares):
    """Of each slot the symbol, the symbol's share, and the slot's place among those of the symbol."""
    left, divider, alias, order = list(shares), [16] * 16, [None] * 16, []
    for _ in range(16):
        b = min((b for b in range(16) if b not in order), key=lambda b: (left[b], b))
        order.append(b)
        divider[b] = min(left[b], 16)
        left[b] -= divider[b]
        if divider[b] < 16:
            alias[b] = max(range(16), key=lambda a: (left[a], a))
            left[alias[b]] -= 16 - divider[b]
    slots, places = [None] * 256, [0] * 16
    own = [(b, 16 * b + p) for b in range(16) for p in range(divider[b])]
    for symbol, slot in own + [(alias[b], 16 * b + p) for b in order for p in range(divider[b], 16)]:
        slots[slot] = symbol, shares[symbol], places[symbol]
        places[symbol] += 1
    return slots


def read_segments(data):
    """The height, the largest v, and of each component its class, v, blocks a row and rows of blocks."""
    check(data[:2] == b"\xff\xd8", "no SOI")
    at, marker, frame, adobe, jfif, quantisation = 2, None, None, None, False, set()
    while marker != 0xDA:
        check(at + 4 <= len(data) and data[at] == 0xFF, "segments that end before SOS")
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        body = data[at + 4 : at + 2 + length]
        at += 2 + length
        check(len(body) == length - 2, "a segment of a wrong length")
        if marker == 0xE0 and len(body) >= 14 and body.startswith(b"JFIF\0"):
            jfif = True
        elif marker == 0xEE and len(body) >= 12 and body.startswith(b"Adobe"):
            adobe = body[11]
        elif marker == 0xDB:
            while body:
                quantisation.add(body[0] & 15)
                body = body[129 if body[0] >> 4 else 65 :]
        elif marker in (0xC0, 0xC1):
            frame = body
    check(frame and len(frame) >= 9 and frame[0] == 8, "no frame header of 8 bits a sample")
    height, width, count = struct.unpack_from(">HHB", frame, 1)
    check(count in (1, 3, 4) and len(frame) >= 6 + 3 * count and height and width, "no size, or other components")
    ids, factors = frame[6 : 6 + 3 * count : 3], [(f >> 4, f & 15) for f in frame[7 : 6 + 3 * count : 3]]
    check(all(1 <= f <= 4 for pair in factors for f in pair), "sampling factors")
    check(set(frame[8 : 6 + 3 * count : 3]) <= quantisation, "a quantisation table that is not there")
    check(body[0] == count and set(body[1 : 1 + 2 * count : 2]) == set(ids), "not one scan of all components")
    factors = factors if count > 1 else [(1, 1)]
    check(sum(h * v for h, v in factors) <= 10, "an MCU of more than ten blocks")
    ycbcr = jfif or (ids != b"RGB" if adobe is None else adobe != 0)
    chrominance = (1, 2) if (adobe == 2 if count == 4 else ycbcr) else ()
    h_max, v_max = (max(f[i] for f in factors) for i in (0, 1))
    shapes = [(v, ceil(ceil(width * h, h_max), 8), ceil(ceil(height * v, v_max), 8)) for h, v in factors]
    return height, v_max, [(int(i in chrominance), *shape) for i, shape in enumerate(shapes)]


class Coder:
    def __init__(self, states, data):
        self.vectors, self.bytes = itertools.cycle(states), iter(data)

    def read(self, tables):
        """A symbol by each of the tables, 32 a step."""
        symbols = []
        for first in range(0, len(tables), 32):
            states = next(self.vectors)
            for lane, table in enumerate(tables[first : first + 32]):
                symbol, share, place = table[states[lane] & 255]
                state = share * (states[lane] >> 8) + place
                if state < 256:
                    byte = next(self.bytes, None)
                    check(byte is not None, "the coder's bytes end")
                    state = 256 * state + byte
                states[lane] = state
                symbols.append(symbol)
        return symbols


def read_group(data, tables, counts):
    """Of each class its blocks in zigzag order, of which it has so many; DC as differences."""
    check(data and data[0] >> 6 != 3, "no bytes, or more states than a group has")
    raw_length, at = read_length(data, 1)
    extra_length, at = read_length(data, at)
    coded_at, extra_at = at + (64 << (data[0] >> 6)), len(data) - extra_length
    raw_at = extra_at - raw_length
    check(coded_at <= raw_at, "too few bytes")
    states = [[data[v + j] + 256 * data[v + 32 + j] for j in range(32)] for v in range(at, coded_at, 64)]
    coder = Coder(states, data[coded_at:raw_at])
    classes, slots, places, tokens = [], [], [], []
    for number, (count, (of_tokens, of_types)) in enumerate(zip(counts, tables)):
        check(count <= 65535, "too many blocks")
        types = coder.read([lay_out(of_types[data[0] >> 3 * number & 7])] * count)
        order = sorted(range(count), key=lambda block: types[block])
        sixteens = [order[first : first + 16] for first in range(0, count, 16)]
        table_types = [types[blocks[len(blocks) // 2]] for blocks in sixteens for _ in blocks]
        classes.append([[0] * 64 for _ in order])
        slots.append([(classes[number][b], CAPS[types[b]], of_tokens[64 * t :]) for b, t in zip(order, table_types)])
    for k, of_class in itertools.product(range(64), slots):
        alive = [(block, table[k]) for block, cap, table in of_class if cap >= k]
        tokens += coder.read([lay_out(table) for _, table in alive])
        places += [(block, k) for block, _ in alive]
    check(next(coder.bytes, None) is None, "bytes that the coder does not take")
    check(all(state >> 8 == 1 for lanes in states for state in lanes), "symbols that do not end where they should")
    raw = data[raw_at:extra_at] + bytes(state & 255 for lanes in states for state in lanes)
    bits, bit, extras = int.from_bytes(raw, "little"), 0, data[extra_at:]
    check(tokens.count(ESCAPE) == len(extras), "more extra bytes than escapes, or fewer")
    for (block, k), token in zip(places, tokens):
        field = bits >> bit & (1 << BITS[token]) - 1
        bit += BITS[token]
        magnitude = LEAST[token] + (field >> 1)
        if token == ESCAPE:
            magnitude, extras = magnitude + 128 * extras[0], extras[1:]
        block[k] = -magnitude if field & 1 else magnitude
    check(bit <= 8 * len(raw), "tokens of more raw bits than there are")
    return classes


def main(tables_path, path):
    with open(tables_path, "rb") as tables_file, open(path, "rb") as file:
        tables_bytes, data = tables_file.read(), file.read()
    check(data[:4] == b"SKP1" and len(data) >= 12, "an image of another version, or none")
    tables_id, length = struct.unpack_from("<II", data, 4)
    check(zlib.crc32(tables_bytes) == tables_id, "other tables than the image's")
    check(12 + length < len(data) and data[12 + length] > 0, "segments behind the file's end, or groups of no rows")
    tables, (height, v_max, components) = read_tables(tables_bytes), read_segments(data[12 : 12 + length])
    rows, at, lengths = data[12 + length], 13 + length, []
    for _ in range(0, ceil(height, 8 * v_max), rows):
        length, at = read_length(data, at)
        lengths.append(length)
    check(at + sum(lengths) == len(data), "groups that do not end with the file")
    output = [bytearray() for _ in components]
    for group, length in enumerate(lengths):
        # Of each component its rows of blocks in the group.
        high = [min((group + 1) * rows * v, all) - group * rows * v for _, v, _, all in components]
        counts = [sum(c[2] * h for c, h in zip(components, high) if c[0] == number) for number in (0, 1)]
        classes = [iter(blocks) for blocks in read_group(data[at : at + length], tables, counts)]
        at += length
        for out, (number, _, wide, _), h in zip(output, components, high):
            for _ in range(h):
                dc = 0
                for _ in range(wide):
                    block = next(classes[number])
                    dc += block[0]
                    block[0] = (dc + 32768) % 65536 - 32768
                    out += struct.pack("<64h", *(block[ZIGZAG.index(place)] for place in range(64)))
    for number, (out, (_, _, wide, high)) in enumerate(zip(output, components)):
        print(number, wide, high, f"{zlib.crc32(out):08x}")


if __name__ == "__main__":
    main(*sys.argv[1:])
