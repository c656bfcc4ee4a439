"""How each operation of Tile IR lies in bytecode: opcode, name and, in order, its parts; as of CUDA 13.5."""

from __future__ import annotations

from typing import Final, NamedTuple

#: Enumerations by name; a value's number is its place.
ENUMERATIONS: Final = {
    "rounding": (
        "nearest_even",
        "zero",
        "negative_inf",
        "positive_inf",
        "approx",
        "full",
        "nearest_int_to_zero",
        "nearest_away",
    ),
    "signedness": ("unsigned", "signed"),
    "overflow": ("none", "no_signed_wrap", "no_unsigned_wrap", "no_wrap"),
    "ordering": ("unordered", "ordered"),
    "predicate": ("equal", "not_equal", "less_than", "less_than_or_equal", "greater_than", "greater_than_or_equal"),
    "memory": ("weak", "relaxed", "acquire", "release", "acq_rel"),
    "scope": ("tl_blk", "device", "sys"),
    "reduction": ("add", "min", "max", "and", "or", "xor", "umin", "umax"),
    "mode": ("and", "or", "xor", "add", "addf", "max", "min", "umax", "umin", "xchg"),
}  # fmt: skip
#: Values that pad a tile where its view ends.
PADDINGS: Final = ("zero", "neg_zero", "nan", "pos_inf", "neg_inf")


class Part(NamedTuple):
    """One part of an operation.

    Attributes
    ----------
    kind : str
        ``type``, ``types``, ``flags``, ``operand``, ``operands``, ``enum``, ``number``, ``byte``, ``text``,
        ``constant``, ``bytes``, ``numbers``, ``tagged``, ``several``, ``hints`` or ``regions``.
    name : str
        Of the attribute; of flags, the names of their bits, with commas.
    bit : int or None
        The flag without which it is not there.
    since : tuple of int
        The version of the bytecode that has it first.
    enumeration : str
        Which of `ENUMERATIONS` an ``enum`` is of.
    """

    kind: str
    name: str
    bit: int | None
    since: tuple[int, int]
    enumeration: str = ""


class Form(NamedTuple):
    """An operation's name, the version that has it first, and its parts."""

    name: str
    since: tuple[int, int]
    parts: tuple[Part, ...]


# Parts: r a result's type, R several; o an operand, O several; f[…] flags by their bits; e:… an enumeration, of another
# name as e:name=enumeration; n: a number, b: a byte, s: a text, c: a constant, l: bytes, L: numbers, t: a tagged
# attribute, T: several; h: hints; G regions. `?2` after it: there if that flag is set; `@3`: since version 13.3,
# as after an operation's name.
_TEXT: Final = """
0 absf r o
1 absi r o
2 addf r f[ftz] e:rounding o o
3 addi r e:overflow o o
4 andi r o o
5 assert s:message o
6 assume r t:predicate o
7 atomic_cas_tko r r f[mask,token] e:memory e:scope o o o o:mask?0 o:token?1
8 atomic_rmw_tko r r f[mask,token] e:memory e:scope e:mode o o o:mask?0 o:token?1
9 bitcast r o
10 break R O
11 broadcast r o
12 cat r n:dim o o
13 ceil r o
14 cmpf r e:predicate e:ordering o o
15 cmpi r e:predicate e:signedness o o
16 constant r c:value
17 continue R O
18 cos r o
19 cosh r o
20 divf r f[ftz] e:rounding o o
21 divi r e:signedness e:rounding o o
23 exp r e:rounding@3 o
24 exp2 r f[ftz] o
37 exti r e:signedness o
38 extract R O
39 floor r o
40 fma r f[ftz] e:rounding o o o
41 for R f[unsigned]@2 O G
42 ftof r e:rounding o
43 ftoi r f[saturate]@4 e:signedness e:rounding o
44 get_global r s:symbol
45 get_index_space_shape R o
46 get_num_tile_blocks r r r
47 get_tensor_shape R o
48 get_tile_block_id r r r
50 if R o G
51 int_to_ptr r o
58 iota r
59 itof r e:signedness e:rounding o
60 join_tokens R O
61 load_ptr_tko r r f[scope,hints,mask,padding,token] e:memory e:scope?0 h:hints?1 o o:mask?2 o:padding?3 o:token?4
62 load_view_tko R f[scope,hints,token] e:memory e:scope?0 h:hints?1 l:inbounds@4 o O o:token?2
63 log r o
64 log2 r o
65 loop R O G
66 make_partition_view r o
67 make_tensor_view R o O O
68 make_token r
69 maxf r f[nan,ftz] o o
70 maxi r e:signedness o o
71 minf r f[nan,ftz] o o
72 mini r e:signedness o o
73 mmaf r f[fast]@3 o o o
74 mmai r e:lhs=signedness e:rhs=signedness o o o
76 mulf r f[ftz] e:rounding o o
77 mulhii r o o
78 muli r e:overflow o o
79 negf r o
80 negi r e:overflow@2 o
81 offset r o o
82 ori r o o
83 permute r L:order o
84 fpowf r o o
85 print_tko R f[token]@2 s:format O o:token?0
86 ptr_to_int r o
87 ptr_to_ptr r o
88 reduce R n:dim T:identities O G
89 remf r o o
90 remi r e:signedness o o
91 reshape r o
92 return R O
93 rsqrt r f[ftz] o
94 scan R n:dim b:reverse T:identities O G
95 select r o o o
96 shli r e:overflow o o
97 shri r e:signedness o o
98 sin r o
99 sinh r o
100 sqrt r f[ftz] e:rounding o
101 store_ptr_tko r f[scope,hints,mask,token] e:memory e:scope?0 h:hints?1 o o o:mask?2 o:token?3
102 store_view_tko R f[scope,hints,token] e:memory e:scope?0 h:hints?1 l:inbounds@4 o o O o:token?2
103 subf r f[ftz] e:rounding o o
104 subi r e:overflow o o
105 tan r o
106 tanh r e:rounding@2 o
107 trunci r e:overflow o
108 xori r o o
109 yield R O
110 atan2@2 r o o
111 pack@3 r o
112 unpack@3 r o
113 alloca@3 r f[global] n:count n:alignment
114 mmaf_scaled@3 r o o o o o
115 make_gather_scatter_view@3 r o
116 make_strided_view@3 r o
117 atomic_red_view_tko@3 R f[token] e:memory e:scope e:mode l:inbounds@5 o O o o:token?0
118 insert@4 R O
119 gdc_launch_dependents_tko@4 r O
120 gdc_wait_tko@4 r O
121 fpowi@4 r o o
122 memory_fence_alias_tko@4 r o
123 multimem_load_reduce_view_tko@5 R f[scope,token] e:memory e:scope?0 e:reduction l:inbounds o O o:token?1
124 multimem_reduce_view_tko@5 R f[token] e:memory e:scope e:reduction l:inbounds o o O o:token?0
125 multimem_store_view_tko@5 R f[scope,token] e:memory e:scope?0 l:inbounds o o O o:token?1
"""
_KINDS: Final = {
    "r": "type", "R": "types", "o": "operand", "O": "operands", "e": "enum", "n": "number", "b": "byte", "s": "text",
    "c": "constant", "l": "bytes", "L": "numbers", "t": "tagged", "T": "several", "h": "hints", "G": "regions",
}  # fmt: skip


def _part(text: str) -> Part:
    text, _, since = text.partition("@")
    text, _, bit = text.partition("?")
    version = (13, int(since or 1))
    if text.startswith("f["):
        return Part("flags", text[2:-1], None, version)
    letter, _, name = text.partition(":")
    name, _, other = name.partition("=")
    return Part(_KINDS[letter], name, int(bit) if bit else None, version, other or name)


#: Forms by opcode.
FORMS: Final = {
    int(code): Form(name, (13, int(since or 1)), tuple(map(_part, parts)))
    for code, head, *parts in map(str.split, _TEXT.strip().splitlines())
    for name, _, since in [head.partition("@")]
}
