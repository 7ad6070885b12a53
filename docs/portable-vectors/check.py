#!/usr/bin/env python3
"""A second reading of the arithmetic `portable/1`: ../portable-arithmetic.md in plain Python, held against the vectors.

    python3 check.py [directory of the vectors]

Written from the page alone, without a look at the reference or the kernels, section by section and for reading, not
for speed. Prints a line per file of vectors; the exit status is 0 if every bit is as the page says, else 1.

How f32 comes out of Python's f64: the operands are f32 numbers held in f64, one operation is done in f64 and its result
rounded to f32. That is two roundings, and yet the f32 result is the correctly rounded one: for + - x / double rounding
is innocuous as 53 >= 2*24 + 2. (Results in f32's denormal range, with fewer than 24 bits, are no exception: a sum there
is exact, a product of f32 is exact in f64, and a quotient of 24-bit numbers that is no tie between two f32 differs from
every such tie by 2^-50 of it or more.) Python fuses and reassociates nothing.
"""
import json
import math
import os
import struct
import sys
import time
from operator import mul as times


# ---- 1. Numbers ------------------------------------------------------------------------------------------------------

def f32(x):
    """An f64 rounded to f32, to nearest, ties to even."""
    try:
        return struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:                         # struct's word for "a finite number that rounds to infinity"
        return math.copysign(math.inf, x)

def add(a, b): return f32(a + b)
def sub(a, b): return f32(a - b)
def mul(a, b): return f32(a * b)
def div(a, b): return f32(a / b)                  # the page never divides by zero; Python would raise an error
def minimum(a, b): return a if a < b else b       # literally: with a NaN it is b
def maximum(a, b): return a if a > b else b
def nearest(x): return round(x)                   # Python rounds to an integer exactly, ties to even

def from_integer(n):
    assert abs(n) < 2**31                         # so it is exact in f64, and the one rounding is that to f32
    return f32(float(n))

def f32_of_bits(bits): return struct.unpack("<f", struct.pack("<I", bits))[0]
def f64_of_bits(bits): return struct.unpack("<d", struct.pack("<Q", bits))[0]
def bits_of_f32(x): return struct.unpack("<I", struct.pack("<f", x))[0]
def read_f32s(data): return list(struct.unpack("<%df" % (len(data) // 4), data))

def store_f32s(values):
    """As bytes; every NaN is the one pattern."""
    return b"".join(b"\0\0\xc0\x7f" if math.isnan(x) else struct.pack("<f", x) for x in values)

def f16_of_bits(bits):
    sign, exponent, fraction = -1.0 if bits & 0x8000 else 1.0, bits >> 10 & 31, bits & 1023
    if exponent == 31:
        return math.nan if fraction else sign * math.inf
    if exponent == 0:
        return sign * math.ldexp(fraction, -24)
    return sign * math.ldexp(1024 + fraction, exponent - 25)

def u16(B, i): return B[i] | B[i + 1] << 8
def u32(B, i): return u16(B, i) | u16(B, i + 2) << 16
def f16(B, i): return f16_of_bits(u16(B, i))
def i8(byte): return byte - 256 if byte & 128 else byte
def bits(n, start, count): return n >> start & (1 << count) - 1
def nibble(B, i): return B[i >> 1] >> 4 * (i & 1) & 15         # nibble i of the bytes, the low one first

def e8m0h(e):
    return f32_of_bits(0x00200000 << e if e < 2 else e - 1 << 23)

def ue4m3h(x):
    if x == 0 or x == 127:
        return 0.0
    E, F = x >> 3 & 15, x & 7
    return math.ldexp(F, -10) if E == 0 else math.ldexp(8 + F, E - 11)


# ---- 2. Activation rows ----------------------------------------------------------------------------------------------

FORMS = {"q8x256": 256, "q8x32": 32, "f32": 1}
FORM_OF_TYPE = {name: form for form, names in (
    ("q8x256", "q2_K q3_K q4_K q5_K q6_K iq1_s iq1_m iq2_xxs iq2_xs iq2_s iq3_xxs iq3_s iq4_xs tq1_0 tq2_0"),
    ("q8x32", "q4_0 q4_1 q5_0 q5_1 q8_0 iq4_nl mxfp4 nvfp4"),
    ("f32", "f32 f16 bf16")) for name in names.split()}

def quantise_block(form, x):
    """-> d, q"""
    if any(math.isnan(v) or math.isinf(v) for v in x):
        return math.nan, [0] * len(x)
    amax = max(abs(v) for v in x)
    if amax < 2.0**-100:
        return 0.0, [0] * len(x)
    if form == "q8x256":
        top = next(v for v in x if abs(v) == amax)
        s = div(-127.0, top)
        q = [nearest(mul(s, v)) for v in x]
        d = div(1.0, s)
    else:
        d = div(amax, 127.0)
        s = div(1.0, d)
        q = [nearest(mul(v, s)) for v in x]
    assert all(abs(v) <= 127 for v in q)
    return d, q

def quantise_row(form, row):
    """f32 bytes -> the row's bytes in its form."""
    if form == "f32":
        return row
    n, x, out = FORMS[form], read_f32s(row), []
    assert len(x) % n == 0, "columns are no multiple of the form's block"
    for i in range(0, len(x), n):
        d, q = quantise_block(form, x[i:i + n])
        out.append(store_f32s([d]) + struct.pack("%db" % n, *q))
    return b"".join(out)

def read_quantised_row(form, data):
    """-> a list of blocks (da, a)"""
    size = 4 + FORMS[form]
    assert len(data) % size == 0
    return [(read_f32s(data[i:i + 4])[0], [max(i8(b), -127) for b in data[i + 4:i + size]])
            for i in range(0, len(data), size)]


# ---- 3. Weights ------------------------------------------------------------------------------------------------------
# A function per type: the bytes of a block -> its units (W, d, N, m); N and m are None where the type has none.

K = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]
F = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]

def v(B, p):
    """The 32 nibbles of the 16 bytes at p."""
    return [B[p + j] & 15 if j < 16 else B[p + j - 16] >> 4 for j in range(32)]

def plain(W, d): return [(W, d, None, None)]
def h(word): return [word >> j & 1 for j in range(32)]
def q4_0(B): return plain([x - 8 for x in v(B, 2)], f16(B, 0))
def q4_1(B): return [(v(B, 4), f16(B, 0), [-1] * 32, f16(B, 2))]
def q5_0(B): return plain([x + 16 * y - 16 for x, y in zip(v(B, 6), h(u32(B, 2)))], f16(B, 0))
def q5_1(B): return [([x + 16 * y for x, y in zip(v(B, 8), h(u32(B, 4)))], f16(B, 0), [-1] * 32, f16(B, 2))]
def q8_0(B): return plain([i8(b) for b in B[2:34]], f16(B, 0))
def iq4_nl(B): return plain([K[x] for x in v(B, 2)], f16(B, 0))
def mxfp4(B): return plain([F[x] for x in v(B, 1)], e8m0h(B[0]))

def nvfp4(B):
    units = []
    for u in (0, 1):
        p = 4 + 16 * u
        f = [F[x] for part in (B[p:p + 8], B[p + 8:p + 16]) for x in [b & 15 for b in part] + [b >> 4 for b in part]]
        units.append((f[:16] + [0] * 16, ue4m3h(B[2 * u]), [0] * 16 + [-x for x in f[16:]], ue4m3h(B[2 * u + 1])))
    return units

J = range(256)                                    # columns of 256; j % 32 is the page's j with 32 below

def two_bits(B, at, j): return bits(B[at + 32 * (j >> 7) + j % 32], 2 * (j >> 5 & 3), 2)
def nibble_K(B, at, j): return B[at + 32 * (j >> 6) + j % 32] >> (4 if j & 32 else 0) & 15

def q2_K(B):
    c = [B[s] & 15 for s in range(16)]
    return [([c[j >> 4] * two_bits(B, 16, j) for j in J], f16(B, 80), [B[j >> 4] >> 4 for j in J], f16(B, 82))]

def q3_K(B):
    low = [B[96 + s] & 15 if s < 8 else B[88 + s] >> 4 for s in range(16)]
    c = [low[s] + 16 * bits(B[104 + (s & 3)], 2 * (s >> 2), 2) - 32 for s in range(16)]
    q = [two_bits(B, 32, j) - (0 if bits(B[j % 32], j >> 5, 1) else 4) for j in J]
    return plain([c[j >> 4] * q[j] for j in J], f16(B, 108))

def scales_q4_K(B):
    Z, c, n = B[4:16], [], []
    for s in range(8):
        c.append(Z[s] & 63 if s < 4 else (Z[s + 4] & 15) + 16 * (Z[s - 4] >> 6))
        n.append(Z[s + 4] & 63 if s < 4 else (Z[s + 4] >> 4) + 16 * (Z[s] >> 6))
    return c, n

def q4_K(B):
    c, n = scales_q4_K(B)
    return [([c[j >> 5] * nibble_K(B, 16, j) for j in J], f16(B, 0), [n[j >> 5] for j in J], f16(B, 2))]

def q5_K(B):
    c, n = scales_q4_K(B)
    q = [nibble_K(B, 48, j) + 16 * bits(B[16 + j % 32], j >> 5, 1) for j in J]
    return [([c[j >> 5] * q[j] for j in J], f16(B, 0), [n[j >> 5] for j in J], f16(B, 2))]

def q6_K(B):
    def q(j, i, r):
        low = B[64 * i + 32 * (r & 1) + j % 32] >> (0 if r < 2 else 4) & 15
        return low + 16 * bits(B[128 + 32 * i + j % 32], 2 * r, 2) - 32
    return plain([i8(B[192 + (j >> 4)]) * q(j, j >> 7, j >> 5 & 3) for j in J], f16(B, 208))

def iq4_xs(B):
    c = [nibble(B[4:8], s) + 16 * bits(u16(B, 2), 2 * s, 2) - 32 for s in range(8)]
    q = [K[B[8 + 16 * (j >> 5) + (j & 15)] >> (4 if j & 16 else 0) & 15] for j in J]
    return plain([c[j >> 5] * q[j] for j in J], f16(B, 0))

def tq1_0(B):
    def digit(b, k): return (b * 3**k & 255) * 3 >> 8
    return plain([digit(B[j % 32], j >> 5) - 1 for j in range(160)] +
                 [digit(B[32 + (i & 15)], i >> 4) - 1 for i in range(80)] +
                 [digit(B[48 + (i & 3)], i >> 2) - 1 for i in range(16)], f16(B, 52))

def tq2_0(B): return plain([two_bits(B, 0, j) - 1 for j in J], f16(B, 64))

# 256 columns from grids

GRID = {}                                         # name -> list of entries, from grids.json
GLK = [(j >> 5, j >> 3 & 3, j & 7) for j in J]    # group of 32, entry of 8 in it, column of the entry

def signs(t): return t | (bin(t).count("1") & 1) << 7
def signed(sign_byte, k, x): return -x if sign_byte >> k & 1 else x

def grid(weight, d): return plain([weight(*glk) for glk in GLK], d)

def iq2_xxs(B):
    def weight(g, l, k):
        a, b = u32(B, 2 + 8 * g), u32(B, 6 + 8 * g)
        return signed(signs(b >> 7 * l & 127), k, (2 * (b >> 28) + 1) * GRID["iq2xxs"][a >> 8 * l & 255][k])
    return grid(weight, mul(f16(B, 0), 0.125))

def iq2_xs(B):
    def weight(g, l, k):
        a, c = u16(B, 2 + 8 * g + 2 * l), nibble(B, 2 * (66 + g) + (l >> 1))
        return signed(signs(a >> 9), k, (2 * c + 1) * GRID["iq2xs"][a & 511][k])
    return grid(weight, mul(f16(B, 0), 0.125))

def iq2_s(B):
    def weight(g, l, k):
        i, c = B[2 + 4 * g + l] + 256 * bits(B[66 + g], 2 * l, 2), nibble(B, 2 * (74 + g) + (l >> 1))
        return signed(B[34 + 4 * g + l], k, (2 * c + 1) * GRID["iq2s"][i][k])
    return grid(weight, mul(f16(B, 0), 0.125))

def iq3_xxs(B):
    def weight(g, l, k):
        b, i = u32(B, 66 + 4 * g), B[2 + 8 * g + 2 * l + (k >> 2)]
        return signed(signs(b >> 7 * l & 127), k, (2 * (b >> 28) + 1) * GRID["iq3xxs"][i][k & 3])
    return grid(weight, mul(f16(B, 0), 0.25))

def iq3_s(B):
    def weight(g, l, k):
        h = 2 * l + (k >> 2)
        i, c = B[2 + 8 * g + h] + 256 * bits(B[66 + g], h, 1), nibble(B, 2 * (106 + (g >> 1)) + (g & 1))
        return signed(B[74 + 4 * g + l], k, (2 * c + 1) * GRID["iq3s"][i][k & 3])
    return grid(weight, f16(B, 0))

def iq1_s(B):
    def weight(g, l, k):
        a = u16(B, 34 + 2 * g)
        i, t = B[2 + 4 * g + l] + 256 * (a >> 3 * l & 7), -1 if a >> 15 else 1
        return (2 * (a >> 12 & 7) + 1) * (8 * GRID["iq1"][i][k] + t)
    return grid(weight, mul(f16(B, 0), 0.125))

def iq1_m(B):
    def weight(g, l, k):
        x = nibble(B, 2 * (32 + 2 * g + (l >> 1)) + (l & 1))
        i, t = B[4 * g + l] + 256 * (x & 7), -1 if x >= 8 else 1
        c = u16(B, 48 + 2 * (g >> 1)) >> 6 * (g & 1) + 3 * (l >> 1) & 7
        return (2 * c + 1) * (8 * GRID["iq1"][i][k] + t)
    d = sum((u16(B, 48 + 2 * i) >> 12) << 4 * i for i in range(4))
    return grid(weight, mul(f16_of_bits(d), 0.125))

BLOCK = {                                         # type -> bytes and columns of a block of weights
    "q4_0": (18, 32), "q4_1": (20, 32), "q5_0": (22, 32), "q5_1": (24, 32), "q8_0": (34, 32), "iq4_nl": (18, 32),
    "mxfp4": (17, 32), "nvfp4": (36, 64),
    "q2_K": (84, 256), "q3_K": (110, 256), "q4_K": (144, 256), "q5_K": (176, 256), "q6_K": (210, 256),
    "iq4_xs": (136, 256), "tq1_0": (54, 256), "tq2_0": (66, 256), "iq2_xxs": (66, 256), "iq2_xs": (74, 256),
    "iq2_s": (82, 256), "iq3_xxs": (98, 256), "iq3_s": (110, 256), "iq1_s": (50, 256), "iq1_m": (56, 256),
    "f32": (4, 1), "f16": (2, 1), "bf16": (2, 1)}
UNITS = {f.__name__: f for f in (
    q4_0, q4_1, q5_0, q5_1, q8_0, iq4_nl, mxfp4, nvfp4, q2_K, q3_K, q4_K, q5_K, q6_K, iq4_xs, tq1_0, tq2_0,
    iq2_xxs, iq2_xs, iq2_s, iq3_xxs, iq3_s, iq1_s, iq1_m)}
NUMBER = {
    "f32": lambda B: f32_of_bits(u32(B, 0)), "f16": lambda B: f16(B, 0), "bf16": lambda B: f32_of_bits(u16(B, 0) << 16)}
assert set(BLOCK) == set(FORM_OF_TYPE) == set(UNITS) | set(NUMBER)


# ---- 4. Products -----------------------------------------------------------------------------------------------------

def unit_term(W, d, N, m, da, a):
    t = mul(from_integer(sum(map(times, W, a))), mul(d, da))
    if N is None:
        return t
    return sub(t, mul(from_integer(sum(map(times, N, a))), mul(m, da)))

def fold(L):
    return add(add(add(L[0], L[4]), add(L[2], L[6])), add(add(L[1], L[5]), add(L[3], L[7])))

def product(type_, weights, rows, columns, row):
    """The bytes of a matrix and of a row in the form of its type -> f32 bytes of the outputs."""
    size, width = BLOCK[type_]
    assert columns % width == 0 and len(weights) == rows * columns // width * size
    blocks = [weights[i:i + size] for i in range(0, len(weights), size)]
    form, per_row, y = FORM_OF_TYPE[type_], columns // width, []
    activations = read_f32s(row) if form == "f32" else read_quantised_row(form, row)
    assert len(activations) * FORMS[form] == columns
    for r in range(rows):
        of_row, L = blocks[r * per_row:(r + 1) * per_row], [0.0] * 8
        if form == "f32":
            terms = [mul(NUMBER[type_](B), x) for B, x in zip(of_row, activations)]
        else:
            units = [unit for B in of_row for unit in UNITS[type_](B)]
            assert len(units) == len(activations)
            terms = [unit_term(*unit, da, a) for unit, (da, a) in zip(units, activations)]
        for u, t in enumerate(terms):
            L[u % 8] = add(L[u % 8], t)
        y.append(fold(L))
    return store_f32s(y)


# ---- 5. Functions ----------------------------------------------------------------------------------------------------

LOG2E, LN2 = f64_of_bits(0x3FF71547652B82FE), f64_of_bits(0x3FE62E42FEFA39EF)
GELU_Z, GELU_C = f64_of_bits(0x3FF9884533D43651), f64_of_bits(0x3FA6E4E26D4801F7)
assert (LOG2E, LN2, GELU_Z, GELU_C) == (1.4426950408889634, 0.6931471805599453, 1.5957691216057308, 0.044715)

def E(t):
    t = minimum(maximum(t, -200.0), 200.0)
    n = nearest(t * LOG2E)
    r = t - float(n) * LN2
    p = 1.0 / math.factorial(8)
    for k in range(7, -1, -1):
        p = p * r + 1.0 / math.factorial(k)
    return math.ldexp(p, n)

def silu(g): return f32(g / (1.0 + E(-g)))
def gelu(g): return f32(g / (1.0 + E(-(GELU_Z * (g + ((GELU_C * g) * (g * g)))))))
def clamped(u, limit): return maximum(minimum(u, limit), -limit)

def swiglu_oai(g, u, alpha, limit):
    x, y = minimum(g, limit), clamped(u, limit)
    return mul(f32(x / (1.0 + E(-(alpha * x)))), add(y, 1.0))

GATED = {
    "silu": lambda g, u, alpha, limit: mul(silu(g), u),
    "gelu": lambda g, u, alpha, limit: mul(gelu(g), u),
    "relu": lambda g, u, alpha, limit: mul(maximum(g, 0.0), u),
    "swiglu_oai": swiglu_oai,
    "swiglu_clamp": lambda g, u, alpha, limit: mul(silu(minimum(g, limit)), clamped(u, limit)),
    "swiglu_limited": lambda g, u, alpha, limit: mul(minimum(silu(g), limit), clamped(u, limit)),
}
UNGATED = {
    "silu": silu,
    "gelu": gelu,
    "relu": lambda u: maximum(u, 0.0),
    "relu_squared": lambda u: mul(maximum(u, 0.0), maximum(u, 0.0)),
}

def function(name, gate, up, alpha, limit):
    """f32 numbers; gate is None where there is none."""
    assert f32(alpha) == alpha and f32(limit) == limit
    if gate is None:
        return [math.nan if math.isnan(u) else UNGATED[name](u) for u in up]
    assert len(gate) == len(up)
    return [math.nan if math.isnan(g) or math.isnan(u) else GATED[name](g, u, alpha, limit) for g, u in zip(gate, up)]


# ---- 6. An expert ----------------------------------------------------------------------------------------------------

def step(case, name, rows, row):
    """name . row, times its scale, plus its bias; row and result are f32 bytes."""
    type_ = case[name + "_type"]
    y = read_f32s(product(type_, case[name], rows, len(row) // 4, quantise_row(FORM_OF_TYPE[type_], row)))
    if name + "_scale" in case:
        scale, = read_f32s(case[name + "_scale"])
        y = [mul(x, scale) for x in y]
    if name + "_bias" in case:
        bias = read_f32s(case[name + "_bias"])
        assert len(bias) == rows
        y = [add(x, b) for x, b in zip(y, bias)]
    return store_f32s(y)

def expert(case):
    assert len(case["row"]) == 4 * case["hidden"]
    u = read_f32s(step(case, "up", case["ff"], case["row"]))
    g = read_f32s(step(case, "gate", case["ff"], case["row"])) if "gate" in case else None
    h = store_f32s(function(case["function"], g, u, case["alpha"], case["limit"]))
    return result_row(read_f32s(step(case, "down", case["hidden"], h)))


# ---- 7. Result rows --------------------------------------------------------------------------------------------------

def result_block(y):
    """-> e, m"""
    if any(math.isnan(x) or math.isinf(x) for x in y):
        return 32767, [0] * len(y)
    X = max([15] + [bits_of_f32(x) >> 23 & 255 for x in y])
    e = X - 141
    return e, [max(min(nearest(math.ldexp(x, -e)), 32767), -32767) for x in y]    # the product is exact in f64

def result_row(y):
    out = []
    for i in range(0, len(y), 256):
        e, m = result_block(y[i:i + 256])
        out.append(struct.pack("<%dh" % (1 + len(m)), e, *m))
    return b"".join(out)

class Refused(Exception):
    """What a reader says to bytes that are no result row."""

def refuse_unless(good):
    if not good:
        raise Refused

def read_result_row(data, columns):
    refuse_unless(len(data) == 2 * (columns + (columns + 255) // 256))
    numbers, y = list(struct.unpack("<%dh" % (len(data) // 2), data)), []
    while numbers:
        n = min(256, columns - len(y))
        e, m, numbers = numbers[0], numbers[1:1 + n], numbers[1 + n:]
        if e == 32767:
            refuse_unless(not any(m))
            y += [math.nan] * n
        else:
            refuse_unless(-126 <= e <= 113 and -32768 not in m)
            y += [mul(from_integer(x), math.ldexp(1.0, e)) for x in m]
    assert len(y) == columns
    return store_f32s(y)


# ---- The vectors -----------------------------------------------------------------------------------------------------

def difference(what, expected, got, size):
    """None, or where the bytes differ first; size is that of a number in them."""
    if expected == got:
        return None
    if len(expected) != len(got):
        return "%s: %d bytes, not the vector's %d" % (what, len(got), len(expected))
    i = next(i for i in range(len(got)) if expected[i] != got[i]) // size * size
    return "%s, byte %d: %s, not the vector's %s" % (what, i, got[i:i + size].hex(), expected[i:i + size].hex())

def check_grid(case):
    """Of a table the page says how far an index reaches, how wide an entry is, and (section 4) its largest value."""
    entries, columns, largest = {
        "iq2xxs": (256, 8, 43), "iq2xs": (512, 8, 43), "iq2s": (1024, 8, 43), "iq1": (2048, 8, 1),
        "iq3xxs": (256, 4, 62), "iq3s": (512, 4, 15)}[case["grid"]]
    values = [i8(b) for b in bytes.fromhex(case["values"])]
    if (case["entries"], case["columns"], len(values)) != (entries, columns, entries * columns):
        return "shape"
    if max(map(abs, values)) != largest:
        return "largest value is %d, not %d" % (max(map(abs, values)), largest)
    GRID[case["grid"]] = [values[i:i + columns] for i in range(0, len(values), columns)]
    return None if len(set(map(tuple, GRID[case["grid"]]))) == entries else "an entry twice"

def check_row(case):
    assert len(case["row"]) == 4 * case["columns"]
    return difference("quantised", case["quantised"], quantise_row(case["form"], case["row"]), 1)

def check_product(case):
    got = product(case["type"], case["weights"], case["rows"], case["columns"], case["row"])
    return difference("product", case["product"], got, 4)

def check_function(case):
    if case["function"] == "exponential":
        t = struct.unpack("<%dd" % (len(case["t"]) // 8), case["t"])
        return difference("value", case["value"], struct.pack("<%dd" % len(t), *map(E, t)), 8)
    gate = read_f32s(case["gate"]) if "gate" in case else None
    got = function(case["function"], gate, read_f32s(case["up"]), case["alpha"], case["limit"])
    return difference("value", case["value"], store_f32s(got), 4)

def check_expert(case):
    return difference("result", case["result"], expert(case), 2)

def check_result(case):
    """With a row what is written and read; without, bytes that nothing here writes and a reader takes or refuses."""
    try:
        read = read_result_row(case["result"], case["columns"])
    except Refused:
        return None if "refused" in case else "refused"
    if "refused" in case:
        return "not refused"
    if "row" in case:
        assert len(case["row"]) == 4 * case["columns"]
        wrong = difference("result", case["result"], result_row(read_f32s(case["row"])), 2)
        if wrong:
            return wrong
    return difference("read", case["read"], read, 4)

HEX = "row quantised weights product t gate up value result read down".split() + [
    name + part for name in ("up", "gate", "down") for part in ("_scale", "_bias")]

def kind_of_expert(case):
    if "gate" in case and case["gate_type"] != case["up_type"]:
        return "two types"
    found = [many for one, many in (("_scale", "scales"), ("_bias", "biases"))
             if any(name + one in case for name in ("up", "gate", "down"))]
    return " and ".join(found) or "plain"

KINDS = {                                         # what a file must have a case of, so that none passes by being short
    "grids": lambda case: case["grid"], "rows": lambda case: case["form"], "products": lambda case: case["type"],
    "functions": lambda case: case["function"] + (" gated" if "gate" in case else ""), "experts": kind_of_expert,
    "results": lambda case: "refused" if "refused" in case else "written" if "row" in case else "only read"}
WANTED = {
    "grids": {"iq2xxs", "iq2xs", "iq2s", "iq3xxs", "iq3s", "iq1"}, "rows": {"q8x256", "q8x32"}, "products": set(BLOCK),
    "functions": {"exponential"} | set(UNGATED) | {name + " gated" for name in GATED},
    "experts": {"plain", "scales", "biases", "scales and biases", "two types"},
    "results": {"written", "only read", "refused"}}

def check_file(directory, name, check):
    """-> number of cases, what is wrong with those that are"""
    with open(os.path.join(directory, name + ".json"), encoding="utf-8") as file:
        cases = json.load(file)
    wrong = []
    for i, case in enumerate(cases):
        try:
            for key in HEX:
                if key in case:
                    case[key] = bytes.fromhex(case[key])
            found = check(case)
        except Exception as error:                # a length that does not fit, a name the page does not know
            found = "%s: %s" % (type(error).__name__, error)
        if found:
            about = [str(case[key]) for key in ("grid", "function", "type", "form", "case") if key in case]
            wrong.append("case %d (%s): %s" % (i + 1, ", ".join(about), found))
    missing = WANTED[name] - {KINDS[name](case) for case in cases}
    return len(cases), wrong + ["no case of %s" % kind for kind in sorted(missing)]

def main():
    directory = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    good = True
    for name, check in (("grids", check_grid), ("rows", check_row), ("products", check_product),
                        ("functions", check_function), ("experts", check_expert), ("results", check_result)):
        start = time.perf_counter()
        try:
            count, wrong = check_file(directory, name, check)
        except Exception as error:                # no such file, no JSON, an array of something else
            count, wrong = 0, ["%s: %s" % (type(error).__name__, error)]
        good = good and not wrong
        print("%-14s %s  %3d cases, %.1f s%s" % (
            name + ".json", "FAIL" if wrong else "ok  ", count, time.perf_counter() - start,
            "; %d wrong, first: %s" % (len(wrong), wrong[0]) if wrong else ""))
    return 0 if good else 1

if __name__ == "__main__":
    sys.exit(main())
