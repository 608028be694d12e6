"""Reads a folder of shards by docs/reference/shard-format.md alone: python read_shards.py OUT

Prints a line for each sample: part, name, class, bytes of the file, their CRC-32, bytes of the tables of its shard.
 A packed JPEG is printed as it is stored.
"""

import json
import os
import struct
import sys
import zlib


def check(data, crc, what):
    if zlib.crc32(data) != crc:
        raise ValueError(f"wrong checksum: {what}")


def read_index(shard, part_id, number):
    """Entries (offset, length, label, width, height), their names, the class names, and the tables."""
    head = shard.read(32)
    magic, version, shard_number, shard_id, length, crc = struct.unpack("<8sIIQII", head)
    check(head[:28], crc, "header")
    assert (magic, shard_number, shard_id) == (b"SKSHARD\n", number, part_id)
    assert version == 1
    tables = b""
    if length:
        section = shard.read(length)
        tables, (crc,) = section[:-4], struct.unpack("<I", section[-4:])
        check(tables, crc, "tables")
    shard.seek(-48, os.SEEK_END)
    foot = shard.read(48)
    end_id, end_number, samples, at, length, index_crc, crc, magic = struct.unpack("<QIIQQII8s", foot)
    check(foot[:36], crc, "footer")
    assert (magic, end_number, end_id) == (b"SKSHEND\n", number, part_id)
    shard.seek(at)
    index = shard.read(length)
    check(index, index_crc, "index")
    entries, names, begin = [], [], 0
    for sample in range(samples):
        *entry, name_end = struct.unpack_from("<QIIIII", index, 28 * sample)
        entries.append(entry)
        names.append(index[28 * samples + begin : 28 * samples + name_end])
        begin = name_end
    at = 28 * samples + begin
    (count,) = struct.unpack_from("<I", index, at)
    at, classes = at + 4, []
    for _ in range(count):
        (length,) = struct.unpack_from("<H", index, at)
        classes.append(index[at + 2 : at + 2 + length].decode())
        at += 2 + length
    assert at == len(index)
    assert not entries or entries[0][0] == (32 + len(tables) + 4 if tables else 32)
    return entries, names, classes, tables


def read_sample(shard, number, entry, name):
    """The image file."""
    offset, length, label, width, height = entry
    shard.seek(offset)
    record = shard.read(length)
    magic, crc, file_crc, *same, name_length = struct.unpack_from("<4s8I", record)
    assert magic == b"SKrc" and same == [length, number, label, width, height]
    head, file = record[: 36 + name_length], record[36 + name_length :]
    check(head[8:], crc, f"head of {name}")
    check(file, file_crc, f"file of {name}")
    assert head[36:] == name
    return file


def main(out):
    with open(os.path.join(out, "shards.json")) as file:
        manifest = json.load(file)
    assert manifest["format"] == "stokehold shards" and manifest["version"] == 1
    for part, facts in manifest["parts"].items():
        for number, facts_of_shard in enumerate(facts["shards"]):
            with open(os.path.join(out, facts_of_shard["file"]), "rb") as shard:
                entries, names, classes, tables = read_index(shard, int(facts["id"], 16), number)
                assert classes == manifest["classes"]
                for sample, (entry, name) in enumerate(zip(entries, names)):
                    file = read_sample(shard, sample, entry, name)
                    columns = [part, name.decode(), classes[entry[2]], len(file), f"{zlib.crc32(file):08x}"]
                    print(*columns, len(tables), sep="\t")


if __name__ == "__main__":
    main(sys.argv[1])
