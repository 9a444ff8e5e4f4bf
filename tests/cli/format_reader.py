# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads a Tux3 volume as doc/FORMAT.md describes it, and by nothing else: the proof that the document is enough.

No code of core/ is used.  The log is replayed in memory, the image is only read.

	volume = Volume("disk.img")
	for entry in volume.walk():
		print(entry.path, entry.attr.size)

As a program: format_reader.py IMAGE lists all files, and checks all checksums.
"""
import bisect
import struct
import sys
from collections import Counter, defaultdict, namedtuple

MASK64 = (1 << 64) - 1
ATTR, PARENT, INLINE, XATTR, DIRENT, EXTENT = 1, 2, 3, 4, 5, 6
QUOTA_USER, QUOTA_GROUP, QUOTA_PROJECT, ORPHAN = 16, 17, 18, 19
S_IFMT, S_IFDIR, S_IFREG, S_IFLNK = 0o170000, 0o040000, 0o100000, 0o120000
INO_VOLUME, INO_ROOT = 1, 2
EXTENT_UNWRITTEN, EXTENT_CSUM, EXTENT_UNCHECKED = 1, 2, 4
ATTR_XATTRS, ATTR_INLINE = 1, 4
FEATURE_QUOTA, FEATURE_DATA_CSUM = 1, 1
COMMIT_DATA_FLUSHED = 1
SLOT_STRIDE = 65536

ANCHOR = struct.Struct("<QIIQQQ16s64sQQQIIQ16sQQQQIIQQQQQQQQ32s")
NODE = struct.Struct("<IIQQQHHI24s")
ITEM = struct.Struct("<QQHHI")
BRANCH = struct.Struct("<QQQQ")
MAP = struct.Struct("<IIQQQQI20s")
LOG = struct.Struct("<IIQQQQQQIIII")
COMMIT = struct.Struct("<QQIIIIQQ32s")
INTENT_PLACE = struct.Struct("<QQQII")
INTENTS = struct.Struct("<IIQQQQIIIIQ")
INTENT = struct.Struct("<QQIIQB3sI112s")
INTENT_RUN = struct.Struct("<QII")
INTENT_NAMED = struct.Struct("<QQQIIII")
RECORD = struct.Struct("<HHI")
ATTRS = struct.Struct("<IIIIQQqqqqIIIIIIIIIIQ")
EXTENT_HEAD = struct.Struct("<QQII")
EXTENT_RECORD = struct.Struct("<QQQQII")
DIRENT_HEAD = struct.Struct("<QBB")
PARENT_HEAD = struct.Struct("<QB")
XATTR_HEAD = struct.Struct("<BBII")
PIECE = struct.Struct("<QI")
QUOTA = struct.Struct("<QQQQQQQQ")

Anchor = namedtuple("Anchor", "magic crc version volume_id slot_offset generation uuid label compat ro_compat incompat "
                    "block_shift group_blocks total_blocks hash_seed created_ns delta root_addr root_birth root_level "
                    "flags log_addr log_seq used_blocks inodes written_ns data_blocks log_after "
                    "unwritten_blocks intent")
Attr = namedtuple("Attr", "mode uid gid nlink size blocks atime_sec mtime_sec ctime_sec btime_sec "
                  "atime_nsec mtime_nsec ctime_nsec btime_nsec rdev_major rdev_minor flags generation projid spare change")
LogBlock = namedtuple("LogBlock", "magic crc volume_id addr seq delta next after index blocks used skip payload")
Commit = namedtuple("Commit", "delta time_ns bytes crc count flags used_blocks inodes intent addrs records good")
Intent = namedtuple("Intent", "delta ino dir name attr runs records")
Extent = namedtuple("Extent", "addr birth len flags csums")
Entry = namedtuple("Entry", "path ino attr")


class FormatError(Exception):
    pass


def expect(condition, what):
    if not condition:
        raise FormatError(what)


# ---- the two hash functions ----

def _crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82f63b78 if byte & 1 else 0)
        table.append(byte)
    return table


CRC_TABLE = _crc_table()


def crc32c(data, crc=0xffffffff):
    table = CRC_TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xff] ^ crc >> 8
    return crc


def sealed(block, crc_offset):
    """Does the object have the checksum that it holds at this offset?"""
    crc = crc32c(block[:crc_offset] + bytes(4) + block[crc_offset + 4:])
    return crc == struct.unpack_from("<I", block, crc_offset)[0]


def siphash24(key, data):
    def rotate(x, n):
        return (x << n | x >> 64 - n) & MASK64

    def rounds(n):
        v0, v1, v2, v3 = v
        for _ in range(n):
            v0 = v0 + v1 & MASK64
            v1 = rotate(v1, 13) ^ v0
            v0 = rotate(v0, 32)
            v2 = v2 + v3 & MASK64
            v3 = rotate(v3, 16) ^ v2
            v0 = v0 + v3 & MASK64
            v3 = rotate(v3, 21) ^ v0
            v2 = v2 + v1 & MASK64
            v1 = rotate(v1, 17) ^ v2
            v2 = rotate(v2, 32)
        v[:] = [v0, v1, v2, v3]

    k0, k1 = struct.unpack("<QQ", key)
    v = [k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573]
    whole = len(data) // 8 * 8
    words = list(struct.unpack(f"<{whole // 8}Q", data[:whole]))
    words.append(int.from_bytes(data[whole:], "little") | (len(data) & 0xff) << 56)
    for word in words:
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xff
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


# ---- chains: entries whose hashes collide, in one item ----

def dirents(data):
    """(ino, type, name) of each entry."""
    at = 0
    while at < len(data):
        ino, kind, length = DIRENT_HEAD.unpack_from(data, at)
        name = data[at + DIRENT_HEAD.size:at + DIRENT_HEAD.size + length]
        expect(length and len(name) == length, "a directory entry is cut short")
        yield ino, kind, name
        at += DIRENT_HEAD.size + length


def parents(data):
    """(dir, name) of each entry."""
    at = 0
    while at < len(data):
        directory, length = PARENT_HEAD.unpack_from(data, at)
        name = data[at + PARENT_HEAD.size:at + PARENT_HEAD.size + length]
        expect(length and len(name) == length, "a parent pointer is cut short")
        yield directory, name
        at += PARENT_HEAD.size + length


def xattr_entries(data):
    """(name, value length, crc, inline value or None, pieces, the entry's bytes) of each entry."""
    at = 0
    while at < len(data):
        length, pieces, value_len, crc = XATTR_HEAD.unpack_from(data, at)
        name_at = at + XATTR_HEAD.size
        value_at = name_at + length
        end = value_at + (pieces * PIECE.size if pieces else value_len)
        expect(length and end <= len(data), "an extended attribute is cut short")
        where = [PIECE.unpack_from(data, value_at + i * PIECE.size) for i in range(pieces)]
        yield (data[name_at:value_at], value_len, crc, None if pieces else data[value_at:end], where, data[at:end])
        at = end


class Volume:
    def __init__(self, path):
        self.file = open(path, "rb")
        self.size = self.file.seek(0, 2)
        self.anchor = self.find_anchor()
        self.block_size = 1 << self.anchor.block_shift
        expect(not self.anchor.incompat & ~FEATURE_DATA_CSUM, "unknown incompatible features")
        self.items = {}
        self.extents = defaultdict(dict)	# ino: {file block: Extent}
        self.node_blocks = set()
        self.read_node(self.anchor.root_addr, self.anchor.root_birth, self.anchor.root_level, (0, 0), None)
        self.inodes = sum(key[1] == ATTR for key in self.items)
        expect(self.inodes == self.anchor.inodes, "the anchor's number of inodes")
        expect(self.data_blocks() == self.anchor.data_blocks, "the anchor's number of data blocks")
        unwritten = sum(e.len for extents in self.extents.values() for e in extents.values() if e.flags & EXTENT_UNWRITTEN)
        expect(unwritten == self.anchor.unwritten_blocks, "the anchor's number of unwritten blocks")
        self.delta = self.anchor.delta
        self.touched = set()
        self.log_next = self.anchor.log_addr
        self.torn = None
        self.skips = 0		# how often numbers of log blocks are left out
        self.commits = self.read_log()
        for commit in self.commits:
            self.replay(commit)
        self.intents = [intent for intent in self.read_intents(self.commits[-1].intent if self.commits else self.anchor.intent)
                        if intent.delta > self.delta]
        self.delta = max([self.delta, *(intent.delta for intent in self.intents)])
        for intent in self.intents:
            self.carry_out(intent)
        self.index = self.by_inode()

    # ---- blocks and anchors ----

    def read_bytes(self, offset, length):
        self.file.seek(offset)
        data = self.file.read(length)
        expect(len(data) == length, f"the image ends before byte {offset + length}")
        return data

    def block(self, addr, count=1):
        expect(addr + count <= self.anchor.total_blocks, f"block {addr} is outside of the volume")
        return self.read_bytes(addr << self.anchor.block_shift, count << self.anchor.block_shift)

    def anchor_at(self, offset):
        if offset < 0 or offset + 512 > self.size:
            return None
        data = self.read_bytes(offset, 512)
        anchor = Anchor(*ANCHOR.unpack_from(data))
        if anchor.magic != int.from_bytes(b"TUX3ANC1", "little"):
            return None
        expect(anchor.version <= 1, f"format version {anchor.version}")
        size = anchor.total_blocks << anchor.block_shift
        if (not sealed(data, 8) or anchor.slot_offset != offset or not 12 <= anchor.block_shift <= 16 or
                anchor.group_blocks != ((1 << anchor.block_shift) - 64) * 8 or size % SLOT_STRIDE or size < 4 << 20):
            return None
        return anchor

    def find_anchor(self):
        found = [self.anchor_at(SLOT_STRIDE), self.anchor_at(2 * SLOT_STRIDE)]
        known = next((a for a in found if a), None)
        size = known.total_blocks << known.block_shift if known else self.size // SLOT_STRIDE * SLOT_STRIDE
        found += [self.anchor_at(size - 2 * SLOT_STRIDE), self.anchor_at(size - SLOT_STRIDE)]
        found = [a for a in found if a]
        expect(found, "no valid anchor")
        return max(found, key=lambda a: a.generation)

    # ---- the tree ----

    def read_node(self, addr, birth, level, low, high):
        """All items below; keys k of this node must have low <= k < high (None: no limit)."""
        data = self.block(addr)
        magic, _, volume_id, own, node_birth, node_level, count, data_start, spare = NODE.unpack_from(data)
        where = f"node {addr}"
        expect(magic == int.from_bytes(b"T3ND", "little") and sealed(data, 4), f"{where}: magic or checksum")
        expect((volume_id, own, node_birth, node_level) == (self.anchor.volume_id, addr, birth, level), f"{where}: identity")
        expect(not any(spare), f"{where}: spare bytes")
        expect(addr not in self.node_blocks and not self.is_fixed(addr), f"{where}: used twice")
        expect(count or addr == self.anchor.root_addr, f"{where}: empty")
        self.node_blocks.add(addr)
        keys = []
        if level:
            expect(count and not data_start, f"{where}: header")
            branches = [BRANCH.unpack_from(data, NODE.size + i * BRANCH.size) for i in range(count)]
            keys = [branch[:2] for branch in branches]
            for i, (ino_type, offset, child, child_birth) in enumerate(branches):
                upper = keys[i + 1] if i + 1 < count else high
                self.read_node(child, child_birth, level - 1, (ino_type, offset), upper)
            expect(not any(data[NODE.size + count * BRANCH.size:]), f"{where}: unused bytes")
        else:
            end = self.block_size
            for i in range(count):
                ino_type, offset, at, length, item_spare = ITEM.unpack_from(data, NODE.size + i * ITEM.size)
                at = at or 65536
                expect(at + length == end and not item_spare, f"{where}: item {i}")
                expect(length <= self.block_size // 4 + 64, f"{where}: item {i} is too long")
                end = at
                keys.append((ino_type, offset))
                self.set_item(ino_type >> 8, ino_type & 0xff, offset, data[at:at + length])
            expect(end == data_start, f"{where}: data_start")
            expect(not any(data[NODE.size + count * ITEM.size:data_start]), f"{where}: unused bytes")
        expect(all(a < b for a, b in zip(keys, keys[1:])), f"{where}: order")
        if keys and addr != self.anchor.root_addr:
            expect(low <= keys[0] and (high is None or keys[-1] < high), f"{where}: keys outside of the parent's range")

    def set_item(self, ino, kind, offset, data):
        if kind == EXTENT:
            self.extents[ino][offset] = self.parse_extent(data)
        else:
            self.items[ino, kind, offset] = bytes(data)

    def parse_extent(self, data):
        addr, birth, length, flags = EXTENT_HEAD.unpack_from(data)
        csums = list(struct.unpack_from(f"<{length}I", data, EXTENT_HEAD.size)) if flags & EXTENT_CSUM else None
        expect(flags in (0, EXTENT_UNWRITTEN, EXTENT_CSUM, EXTENT_UNCHECKED), "flags of an extent item")
        expect(length and len(data) == EXTENT_HEAD.size + 4 * len(csums or []), "length of an extent item")
        expect(length <= (self.block_size // 16 if csums else 1 << 20), "length of an extent")
        return Extent(addr, birth, length, flags, csums)

    # ---- the log ----

    def log_block(self, addr, seq):
        """The block if the chain goes on with it, else None."""
        expect(addr < self.anchor.total_blocks and not self.is_fixed(addr), f"the log goes on at block {addr}")
        data = self.block(addr)
        fields = LOG.unpack_from(data)
        block = LogBlock(*fields, data[LOG.size:LOG.size + fields[10]])
        good = (block.magic == int.from_bytes(b"T3LG", "little") and block.volume_id == self.anchor.volume_id and
                block.addr == addr and block.seq == seq and block.used <= self.block_size - LOG.size and
                block.index < block.blocks and sealed(data, 4))
        return block if good else None

    def log_follow(self, place):
        """The block at this place, if the chain goes on: after a detour it is at the second address."""
        addr, after, seq = place
        return self.log_block(after, seq) or self.log_block(addr, seq)

    def read_commit(self, place):
        """The commit that begins at this place, or None where the log ends; and where it goes on."""
        payload, addrs, first = b"", [], None
        while first is None or len(addrs) < first.blocks:
            block = self.log_follow(place)
            if not block:
                return None, place
            first = first or block
            if (block.index, block.blocks, block.delta) != (len(addrs), first.blocks, first.delta):
                return None, place
            payload += block.payload
            addrs.append(block.addr)
            place = block.next, block.after, block.seq + 1 + block.skip
            self.skips += block.skip > 0
        head = COMMIT.unpack_from(payload)
        records = payload[COMMIT.size:]
        good = head[2] == len(records) and crc32c(records) == head[3]
        return Commit(*head, addrs, records, good), place

    def read_log(self):
        """All complete commits.  The last one does not count if its records or its data are not what they should be."""
        commits, place = [], (self.anchor.log_addr, self.anchor.log_after, self.anchor.log_seq)
        while True:
            commit, after = self.read_commit(place)
            if not commit:
                break
            commits.append(commit)
            place, before = after, place
        expect(all(commit.good for commit in commits[:-1]), "a commit that is not the last one is damaged")
        self.log_next = place[:2]
        if commits and not (commits[-1].good and self.data_is_there(commits[-1])):
            self.torn = commits.pop()
            self.log_next = before[:2]
        return commits

    @staticmethod
    def split_records(records):
        at = 0
        while at < len(records):
            kind, spare, length = RECORD.unpack_from(records, at)
            at += RECORD.size
            expect(at + length <= len(records) and not spare, "a record is cut short")
            yield kind, records[at:at + length]
            at += (length + 7) // 8 * 8

    def records(self, commit):
        records = list(self.split_records(commit.records))
        expect(len(records) == commit.count, "the number of records of a commit")
        return records

    def data_is_there(self, commit):
        if commit.flags & COMMIT_DATA_FLUSHED:
            return True
        for kind, payload in self.records(commit):
            if kind == 9:
                _, _, count, addr, flags, _ = EXTENT_RECORD.unpack_from(payload)
                if flags & EXTENT_CSUM:
                    csums = struct.unpack_from(f"<{count}I", payload, EXTENT_RECORD.size)
                    if any(crc32c(self.block(addr + i)) != csums[i] for i in range(count)):
                        return False
            elif kind == 7:
                for _, length, crc, _, pieces, _ in xattr_entries(payload[16:]):
                    if pieces and crc32c(self.read_pieces(pieces, length)) != crc:
                        return False
        return True

    # ---- replay: what each record does ----

    def replay(self, commit):
        expect(commit.delta > self.delta, "deltas of the log rise")
        self.delta = commit.delta
        for kind, payload in self.records(commit):
            self.apply(kind, payload)
        expect(sum(key[1] == ATTR for key in self.items) == commit.inodes, f"inodes after delta {commit.delta}")
        expect(self.data_blocks() == commit.used_blocks, f"data blocks after delta {commit.delta}")

    def apply(self, kind, payload):
        table = {1: self.item_set, 2: self.item_delete, 3: self.attr_set, 4: self.inode_delete, 5: self.dirent_set,
                 6: self.dirent_delete, 7: self.xattr_set, 8: self.xattr_set, 9: self.extent_map, 10: self.extent_punch,
                 11: self.group_touched, 12: self.tree_merge, 13: self.xattr_punch}
        expect(kind in table, f"record type {kind}")
        self.deleting = kind == 8
        table[kind](payload)

    @staticmethod
    def key(payload):
        ino_type, offset = struct.unpack_from("<QQ", payload)
        return ino_type >> 8, ino_type & 0xff, offset

    def item_set(self, payload):
        self.items[self.key(payload)] = payload[16:]

    def item_delete(self, payload):
        self.items.pop(self.key(payload), None)

    def attr_set(self, payload):
        ino, = struct.unpack_from("<Q", payload)
        key = ino, ATTR, 0
        self.account(self.items.get(key), payload[8:])
        self.items[key] = payload[8:]

    def account(self, old, new):
        """Quota usage follows from attributes.  Grace ends where usage is not above the soft limit."""
        if not self.anchor.ro_compat & FEATURE_QUOTA:
            return
        moves = Counter()
        for attr, sign in ((old, -1), (new, 1)):
            if attr:
                attr = Attr(*ATTRS.unpack(attr))
                for kind, who in ((QUOTA_USER, attr.uid), (QUOTA_GROUP, attr.gid), (QUOTA_PROJECT, attr.projid)):
                    moves[kind, who, 0] += sign * attr.blocks
                    moves[kind, who, 1] += sign
        for (kind, who, field), amount in moves.items():
            key = INO_VOLUME, kind, who
            quota = list(QUOTA.unpack(self.items.get(key, bytes(QUOTA.size))))
            quota[field] += amount
            if who and not quota[field] > quota[2 + 2 * field] > 0:
                quota[6 + field] = 0
            self.items[key] = QUOTA.pack(*quota)
            if not any(quota):
                del self.items[key]

    def inode_delete(self, payload):
        ino, = struct.unpack("<Q", payload)
        attr = self.items.get((ino, ATTR, 0))
        if attr:
            self.account(attr, None)
        for key in [key for key in self.items if key[0] == ino]:
            del self.items[key]
        self.extents.pop(ino, None)

    def chain_change(self, key, keep, add=b""):
        chain = b"".join(keep) + add
        if chain:
            self.items[key] = chain
        else:
            self.items.pop(key, None)

    def parent_change(self, ino, directory, name, add):
        key = ino, PARENT, self.name_hash(directory, PARENT, name)
        entries = [PARENT_HEAD.pack(d, len(n)) + n for d, n in parents(self.items.get(key, b"")) if (d, n) != (directory, name)]
        self.chain_change(key, entries, PARENT_HEAD.pack(directory, len(name)) + name if add else b"")

    def dirent_change(self, payload, add):
        directory, hashed = struct.unpack_from("<QQ", payload)
        (ino, kind, name), = dirents(payload[16:])
        key = directory, DIRENT, hashed
        expect(hashed == self.name_hash(directory, DIRENT, name), f"hash of {name!r} in the log")
        old = list(dirents(self.items.get(key, b"")))
        entries = [DIRENT_HEAD.pack(i, k, len(n)) + n for i, k, n in old if n != name]
        self.chain_change(key, entries, DIRENT_HEAD.pack(ino, kind, len(name)) + name if add else b"")
        for old_ino, _, old_name in old:
            if old_name == name:
                self.parent_change(old_ino, directory, name, False)
        if add:
            self.parent_change(ino, directory, name, True)

    def dirent_set(self, payload):
        self.dirent_change(payload, True)

    def dirent_delete(self, payload):
        self.dirent_change(payload, False)

    def xattr_set(self, payload):
        ino, hashed = struct.unpack_from("<QQ", payload)
        (name, _, _, _, _, entry), = xattr_entries(payload[16:])
        key = ino, XATTR, hashed
        expect(hashed == self.name_hash(ino, XATTR, name), f"hash of {name!r} in the log")
        keep = [e[5] for e in xattr_entries(self.items.get(key, b"")) if e[0] != name]
        self.chain_change(key, keep, b"" if self.deleting else entry)

    def punch(self, ino, start, end):
        """Remove file blocks [start, end); an extent that crosses an edge is cut there."""
        extents = self.extents[ino]
        for at in [at for at, e in extents.items() if at < end and at + e.len > start]:
            e = extents.pop(at)
            for low, high in ((at, min(start, at + e.len)), (max(end, at), at + e.len)):
                if low < high:
                    skip = low - at
                    extents[low] = e._replace(addr=e.addr + skip, len=high - low,
                                              csums=e.csums and e.csums[skip:skip + high - low])

    def extent_map(self, payload):
        ino, block, count, addr, flags, _ = EXTENT_RECORD.unpack_from(payload)
        csums = list(struct.unpack_from(f"<{count}I", payload, EXTENT_RECORD.size)) if flags & EXTENT_CSUM else None
        self.punch(ino, block, block + count)
        self.extents[ino][block] = Extent(addr, self.delta, count, flags, csums)

    def extent_punch(self, payload):
        ino, block, count, _, _, _ = EXTENT_RECORD.unpack_from(payload)
        self.punch(ino, block, min(block + count, MASK64))

    def group_touched(self, payload):
        first, *words = struct.unpack(f"<{len(payload) // 8}Q", payload)
        self.touched |= {first + 64 * i + n for i, word in enumerate(words) for n in range(64) if word >> n & 1}

    def tree_merge(self, payload):
        """Changes which node an item is in, not the items."""
        _, offset, level, right = struct.unpack("<QQII", payload)
        expect(level < 13 and right < 2, "a merge")

    def xattr_punch(self, payload):
        ino, first, last = struct.unpack("<QQQ", payload)
        for key in [key for key in self.items if key[:2] == (ino, XATTR) and first <= key[2] <= last]:
            del self.items[key]

    # ---- intents ----

    def read_batch(self, area, offset, life, seq):
        """The intents of the batch with this number, if it is at offset, and where it ends; else None."""
        addr, blocks = area
        payload, index, count, data_blocks = b"", 0, 1, 0
        while index < count:
            if offset + index >= blocks:
                return None
            block = self.block(addr + offset + index)
            head = INTENTS.unpack_from(block)
            magic, _, volume_id, own, block_life, block_seq, block_index, count, data_blocks, used, base = head
            if (magic != int.from_bytes(b"T3IN", "little") or not sealed(block, 4) or volume_id != self.anchor.volume_id or
                    own != addr + offset + index or (block_life, block_seq, block_index) != (life, seq, index)):
                return None
            if base > self.delta:
                return None
            payload += block[INTENTS.size:INTENTS.size + used]
            index += 1
        at, data, end = 0, addr + offset + count, offset + count + data_blocks
        if data_blocks >> 31:
            data_blocks &= (1 << 31) - 1
            at, data, end = 8, int.from_bytes(payload[:8], "little"), offset + count
            expect(data + data_blocks <= self.anchor.total_blocks, "data of a batch is in the volume")
        data_end = data + data_blocks
        found = []
        while at < len(payload):
            delta, ino, length, runs, directory, name_len, _, records, attr = INTENT.unpack_from(payload, at)
            run_at, extents = at + INTENT.size, []
            for _ in range(runs):
                block, run, _ = INTENT_RUN.unpack_from(payload, run_at)
                csums = list(struct.unpack_from(f"<{run}I", payload, run_at + INTENT_RUN.size))
                if data + run > data_end or any(crc32c(self.block(data + i)) != csums[i] for i in range(run)):
                    return None
                extents.append((block, data, csums))
                data += run
                run_at += (INTENT_RUN.size + 4 * run + 7) // 8 * 8
            name_at = run_at + records
            name = payload[name_at:name_at + name_len]
            expect(name_at + name_len == at + length and not records % 8, "the length of an intent")
            found.append(Intent(delta, ino, directory, name, attr, extents, payload[run_at:name_at]))
            at += (length + 7) // 8 * 8
        return found, end

    def read_intents(self, place):
        addr, life, seq, blocks, offset = INTENT_PLACE.unpack(place)
        intents = []
        while addr:
            batch = self.read_batch((addr, blocks), offset, life, seq) or self.read_batch((addr, blocks), 0, life, seq)
            if not batch:
                break
            intents += batch[0]
            offset = batch[1]
            seq += 1
        return intents

    def set_attr(self, ino, attr):
        self.attr_set(struct.pack("<Q", ino) + ATTRS.pack(*attr))

    def dir_changed(self, ino, entries, mtime, ctime, subdirs=0):
        attr = self.attr(ino)
        mtime = max(mtime, (attr.mtime_sec, attr.mtime_nsec))
        ctime = max(ctime, (attr.ctime_sec, attr.ctime_nsec))
        self.set_attr(ino, attr._replace(size=attr.size + entries, nlink=attr.nlink + subdirs, change=attr.change + 1,
                                         mtime_sec=mtime[0], mtime_nsec=mtime[1], ctime_sec=ctime[0], ctime_nsec=ctime[1]))

    def orphan(self, ino, is_one):
        key = struct.pack("<QQ", INO_VOLUME << 8 | ORPHAN, ino)
        if is_one:
            self.item_set(key + struct.pack("<IIQ", 1, 0, 0))
        else:
            self.item_delete(key)

    def carry_out_names(self, intent):
        """What names lead to; what follows for inodes of which one has changed, and for directories."""
        touched, named = Counter(), {}
        for kind, record in self.split_records(intent.records):
            if kind == 32:
                ino = struct.unpack_from("<Q", record)[0]
                named[ino] = INTENT_NAMED.unpack(record)
                if (ino, ATTR, 0) in self.items and self.attr(ino).mode >> 12 == 4:
                    touched[ino] += 0
            if kind not in (5, 6):
                continue
            directory, hashed = struct.unpack_from("<QQ", record)
            (ino, _, name), = dirents(record[16:])
            expect((kind == 5) == bool(ino) and self.attr(directory).mode >> 12 == 4, "a name of an intent")
            old = [i for i, _, n in dirents(self.items.get((directory, DIRENT, hashed), b"")) if n == name]
            if old == [ino] * (kind == 5):
                continue
            expect(not ino or ino == intent.ino or (ino, ATTR, 0) in self.items, "a name of an intent leads to what is there")
            self.apply(kind, record)
            touched[directory] += (kind == 5) - len(old)
            for inode in [*old, *[ino] * (kind == 5)]:
                touched[inode] += 0
        for ino, entries in touched.items():
            if (ino, ATTR, 0) not in self.items or (ino == intent.ino and self.attr(ino).mode >> 12 != 4):
                expect(ino == intent.ino, "who has a name of an intent is there")
                continue
            _, mtime, ctime, mtime_nsec, ctime_nsec, nlink, _ = named[ino]
            attr = self.attr(ino)
            if attr.mode >> 12 == 4:
                self.dir_changed(ino, entries, (mtime, mtime_nsec), (ctime, ctime_nsec))
                continue
            if bool(attr.nlink) != bool(nlink):
                self.orphan(ino, not nlink)
            self.set_attr(ino, attr._replace(nlink=nlink, ctime_sec=ctime, ctime_nsec=ctime_nsec, change=attr.change + 1))

    def carry_out(self, intent):
        new = Attr(*ATTRS.unpack(intent.attr))
        stored, blocks = 0, 0
        is_dir = new.mode >> 12 == 4
        if is_dir and intent.name:
            if (intent.ino, ATTR, 0) in self.items and self.attr(intent.ino).nlink:
                return
            new = new._replace(size=0, nlink=2)
        self.carry_out_names(intent)
        if is_dir:
            expect(not intent.runs, "an intent of a directory has no data")
            if not intent.name:
                return
        has_name = False
        if (intent.ino, ATTR, 0) in self.items:
            old = self.attr(intent.ino)
            stored, blocks, has_name = old.flags & 7, old.blocks, bool(old.nlink)
            if not has_name:
                self.orphan(intent.ino, False)
        if intent.name and not has_name:
            made = new.btime_sec, new.btime_nsec
            self.dir_changed(intent.dir, 1, made, made, is_dir)
            self.dirent_set(struct.pack("<QQ", intent.dir, self.name_hash(intent.dir, DIRENT, intent.name)) +
                            DIRENT_HEAD.pack(intent.ino, new.mode >> 12, len(intent.name)) + intent.name)
        if stored & ATTR_INLINE:
            all_of_it = any(kind == 10 and struct.unpack_from("<QQ", record, 8) == (0, (1 << 64) - 1)
                            for kind, record in self.split_records(intent.records))
            expect(all_of_it or (intent.runs and not intent.runs[0][0]), "an intent for inline data has block 0, or removes all")
            self.items.pop((intent.ino, INLINE, 0))
            stored &= ~ATTR_INLINE
        before = self.data_blocks()
        for kind, record in self.split_records(intent.records):
            if kind in (5, 6, 32):
                continue
            expect(kind in (7, 8, 10) and struct.unpack_from("<Q", record)[0] == intent.ino, "a record of an intent")
            self.apply(kind, record)
            stored |= ATTR_XATTRS if kind != 10 else 0
        for block, addr, csums in intent.runs:
            self.punch(intent.ino, block, block + len(csums))
            csummed = self.anchor.incompat & FEATURE_DATA_CSUM
            self.extents[intent.ino][block] = Extent(addr, self.delta, len(csums), EXTENT_CSUM if csummed else 0,
                                                     csums if csummed else None)
        new = new._replace(flags=new.flags & ~7 | stored, blocks=blocks + self.data_blocks() - before)
        self.set_attr(intent.ino, new)

    # ---- names and files ----

    def name_hash(self, ino, kind, name):
        h = siphash24(self.anchor.hash_seed, struct.pack("<Q", ino << 8 | kind) + name) & (1 << 63) - 1
        return h + 16 if h < 16 else min(h, (1 << 63) - 3)

    def attr(self, ino):
        return Attr(*ATTRS.unpack(self.items[ino, ATTR, 0]))

    def by_inode(self):
        """{(ino, type): [(offset, data)]} in order of offsets."""
        index = defaultdict(list)
        for (ino, kind, offset), data in sorted(self.items.items()):
            index[ino, kind].append((offset, data))
        return index

    def walk(self):
        """Every name of the volume as an Entry; the root has path "."."""
        index = self.index
        expected = defaultdict(set)		# ino: parent pointers it must have
        todo, seen = [(".", INO_ROOT)], set()
        yield Entry(".", INO_ROOT, self.attr(INO_ROOT))
        while todo:
            path, directory = todo.pop()
            expect(directory not in seen, f"directory {directory} has two names")
            seen.add(directory)
            for hashed, data in index.get((directory, DIRENT), []):
                for ino, kind, name in dirents(data):
                    expect(hashed == self.name_hash(directory, DIRENT, name), f"hash of {name!r}")
                    attr = self.attr(ino)
                    expect(kind == attr.mode >> 12, f"type of {name!r}")
                    expected[ino].add((directory, name))
                    below = name.decode(errors="surrogateescape") if path == "." else \
                        path + "/" + name.decode(errors="surrogateescape")
                    yield Entry(below, ino, attr)
                    if attr.mode & S_IFMT == S_IFDIR:
                        todo.append((below, ino))
        for (ino, kind), items in index.items():
            if kind == PARENT:
                found = set()
                for hashed, data in items:
                    for directory, name in parents(data):
                        expect(hashed == self.name_hash(directory, PARENT, name), "hash of a parent pointer")
                        found.add((directory, name))
                expect(found == expected[ino], f"parent pointers of inode {ino}")

    def target(self, ino):
        return b"".join(data for _, data in self.index.get((ino, INLINE), []))

    def read_pieces(self, pieces, length):
        data = b"".join(self.block(addr, count) for addr, count in pieces)
        return data[:length]

    def xattrs(self, ino):
        found = {}
        for hashed, data in self.index.get((ino, XATTR), []):
            for name, length, crc, value, pieces, _ in xattr_entries(data):
                expect(hashed == self.name_hash(ino, XATTR, name), f"hash of {name!r}")
                if value is None:
                    value = self.read_pieces(pieces, length)
                expect(crc32c(value) == crc, f"checksum of {name!r}")
                found[name.decode()] = value
        return found

    def runs(self, ino):
        """(file block, Extent) in order, without overlaps."""
        runs = sorted(self.extents.get(ino, {}).items())
        for (at, e), (after, _) in zip(runs, runs[1:]):
            expect(at + e.len <= after, f"extents of inode {ino} overlap")
        return runs

    def read(self, ino, offset=0, length=None):
        """File data, each block compared with its checksum."""
        attr = self.attr(ino)
        end = attr.size if length is None else min(attr.size, offset + length)
        if attr.flags & ATTR_INLINE:
            data = self.items[ino, INLINE, 0]
            expect(len(data) == attr.size and not self.extents.get(ino), f"inline data of inode {ino}")
            return data[offset:end]
        out = bytearray(max(end - offset, 0))
        shift = self.anchor.block_shift
        runs = self.runs(ino)
        first = max(bisect.bisect_right([at for at, _ in runs], offset >> shift) - 1, 0)
        for at, e in runs[first:]:
            if at << shift >= end:
                break
            if e.flags & EXTENT_UNWRITTEN:
                continue
            for i in range(max((offset >> shift) - at, 0), e.len):
                start = at + i << shift
                if start >= end:
                    break
                data = self.block(e.addr + i)
                if e.csums:
                    expect(crc32c(data) == e.csums[i], f"checksum of block {at + i} of inode {ino}")
                low, high = max(start, offset), min(start + self.block_size, end)
                out[low - offset:high - offset] = data[low - start:high - start]
        return bytes(out)

    # ---- space ----

    def data_blocks(self):
        count = sum(e.len for extents in self.extents.values() for e in extents.values())
        for (_, kind, _), data in self.items.items():
            if kind == XATTR:
                count += sum(length for entry in xattr_entries(data) for _, length in entry[4])
        return count

    def slot_addr(self, group, slot):
        return (group * self.anchor.group_blocks if group else 3 * SLOT_STRIDE >> self.anchor.block_shift) + slot

    def is_fixed(self, addr):
        group, within = divmod(addr, self.anchor.group_blocks)
        tail = self.anchor.total_blocks - (2 * SLOT_STRIDE >> self.anchor.block_shift)
        return addr >= tail or (within < 2 if group else addr < self.slot_addr(0, 2))

    def groups(self):
        return -(-self.anchor.total_blocks // self.anchor.group_blocks)

    def free_map(self, group):
        """The set of blocks in use by the anchor's map, or None: only the fixed ones are."""
        start = group * self.anchor.group_blocks
        length = min(self.anchor.group_blocks, self.anchor.total_blocks - start)
        if all(self.is_fixed(start + i) for i in (0, 1, length - 1)) and \
                all(self.is_fixed(start + i) for i in range(length)):
            return None			# slots and anchors may overlap there: it has no map
        best = None
        for slot in range(2):
            addr = self.slot_addr(group, slot)
            data = self.block(addr)
            magic, _, volume_id, own, own_group, delta, free, spare = MAP.unpack_from(data)
            if (magic != int.from_bytes(b"T3MP", "little") or volume_id != self.anchor.volume_id or not sealed(data, 4) or
                    (own, own_group) != (addr, group) or delta > self.anchor.delta):
                continue
            if not best or delta > best[0]:
                best = delta, free, spare, int.from_bytes(data[MAP.size:], "little")
        if not best:
            return None
        _, free, spare, bits = best
        expect(not any(spare), f"spare bytes in the map of group {group}")
        expect(self.anchor.group_blocks - bin(bits).count("1") == free, f"free blocks in the map of group {group}")
        expect(bits >> length == (1 << self.anchor.group_blocks - length) - 1, f"end of the map of group {group}")
        return {start + i for i in range(length) if bits >> i & 1}

    def check_space(self):
        """Free maps against what is in use.  Without a log only: replay moves tree nodes."""
        expect(not self.commits, "the log is empty")
        used = set(self.node_blocks)

        def use(addr, count):
            blocks = set(range(addr, addr + count))
            expect(not used & blocks and not any(map(self.is_fixed, blocks)), f"blocks at {addr} are used twice")
            used.update(blocks)
        for extents in self.extents.values():
            for e in extents.values():
                use(e.addr, e.len)
        for (_, kind, _), data in self.items.items():
            if kind == XATTR:
                for entry in xattr_entries(data):
                    for addr, count in entry[4]:
                        use(addr, count)
        fixed = {a for a in range(self.anchor.total_blocks) if self.is_fixed(a)}
        for group in range(self.groups()):
            start = group * self.anchor.group_blocks
            within = range(start, min(start + self.anchor.group_blocks, self.anchor.total_blocks))
            marked = self.free_map(group)
            in_use = {a for a in within if a in used or a in fixed}
            expect((marked if marked is not None else {a for a in within if a in fixed}) == in_use, f"map of group {group}")
        expect(len(used) + len(fixed) == self.anchor.used_blocks, "the anchor's number of used blocks")


def main(path):
    volume = Volume(path)
    for entry in volume.walk():
        kind = entry.attr.mode & S_IFMT
        extra = ""
        if kind == S_IFREG:
            extra = f" crc32c {crc32c(volume.read(entry.ino)) ^ 0xffffffff:08x}"
        elif kind == S_IFLNK:
            extra = f" -> {volume.target(entry.ino)!r}"
        print(f"{entry.ino:8} {entry.attr.mode:06o} {entry.attr.nlink:3} {entry.attr.size:12} {entry.path!r}{extra}")
        for name, value in volume.xattrs(entry.ino).items():
            print(f"{'':8} {name}: {len(value)} bytes")
    print(f"delta {volume.delta}, {len(volume.commits)} commits replayed{', a torn one left out' if volume.torn else ''}")


if __name__ == "__main__":
    main(sys.argv[1])
