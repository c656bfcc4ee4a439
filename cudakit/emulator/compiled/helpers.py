"""The functions that compiled kernels call where an access leaves the way that is checked at once."""

from __future__ import annotations

from cudakit.emulator.compiled.layout import Slot
from cudakit.emulator.machine.memory import LOCAL_WINDOW, SHARED_WINDOW, WINDOW_BITS

READ, WRITE = 0, 1
GLOBAL, GENERIC, SHARED = 0, 1, 2


def _slot(name: str, slot: int) -> str:
    return f"  {name} = getelementptr i64, ptr %ctx, i64 {int(slot)}\n"


#: one(…): the host's address of a lane's access, or 0 with the error written down. LOW, HIGH (the span), SHIFT and
#: FLAGS (0 for none) of the launch's words say for which addresses the same holds: for none, a span of 0 at the
#: highest address.
HELPERS = f"""
define internal void @blame(
    ptr %ctx, i64 %site, i64 %first, i64 %block, i64 %mask, ptr %addresses
) noinline cold nounwind {{
entry:
  %lane = call i64 @llvm.cttz.i64(i64 %mask, i1 false)
  %at = getelementptr i64, ptr %addresses, i64 %lane
  %address = load i64, ptr %at
  %thread = add i64 %first, %lane
{_slot("%s0", Slot.SITE)}  store i64 %site, ptr %s0
{_slot("%s1", Slot.ADDRESS)}  store i64 %address, ptr %s1
{_slot("%s2", Slot.THREAD)}  store i64 %thread, ptr %s2
{_slot("%s3", Slot.AT_BLOCK)}  store i64 %block, ptr %s3
  ret void
}}

define internal i64 @one(
    ptr %ctx, i64 %site, i64 %thread, i64 %block, i64 %address, i64 %size, i64 %use, i64 %space, i64 %row
) noinline cold nounwind {{
entry:
{_slot("%lowp", Slot.LOW)}{_slot("%spanp", Slot.HIGH)}
{_slot("%shiftp", Slot.SHIFT)}{_slot("%flagsp", Slot.FLAGS)}  store i64 -1, ptr %lowp
  store i64 0, ptr %spanp
  store i64 0, ptr %shiftp
  store i64 0, ptr %flagsp
  %am = sub i64 %size, 1
  %odd = and i64 %address, %am
  %isodd = icmp ne i64 %odd, 0
  br i1 %isodd, label %bad, label %even
even:
  switch i64 %space, label %global [ i64 {SHARED}, label %shared
                                     i64 {GENERIC}, label %generic ]
generic:
  %window = lshr i64 %address, {WINDOW_BITS}
  switch i64 %window, label %global [ i64 {SHARED_WINDOW >> WINDOW_BITS}, label %inshared
                                      i64 {LOCAL_WINDOW >> WINDOW_BITS}, label %inlocal ]
inlocal:
  %lo = sub i64 %address, {LOCAL_WINDOW}
  %lend = add i64 %lo, %size
  %lok = icmp ule i64 %lend, %row
  br i1 %lok, label %local, label %bad
local:
{_slot("%lp", Slot.LOCAL)}  %lb = load i64, ptr %lp
  %lr = mul i64 %thread, %row
  %l1 = add i64 %lb, %lr
  %l2 = add i64 %l1, %lo
  ret i64 %l2
inshared:
  br label %shared
shared:
  %base = phi i64 [ 0, %even ], [ {SHARED_WINDOW}, %inshared ]
  %so = sub i64 %address, %base
  %send = add i64 %so, %size
{_slot("%sbp", Slot.SHARED_BYTES)}  %sb = load i64, ptr %sbp
  %sok0 = icmp ule i64 %send, %sb
  %sok1 = icmp ult i64 %so, %send
  %sok = and i1 %sok0, %sok1
  br i1 %sok, label %insidesh, label %bad
insidesh:
{_slot("%sp", Slot.SHARED)}  %sbase = load i64, ptr %sp
  %shost = add i64 %sbase, %so
  store i64 %base, ptr %lowp
  %sspan = sub i64 %sb, %size
  store i64 %sspan, ptr %spanp
  %sshift = sub i64 %sbase, %base
  store i64 %sshift, ptr %shiftp
  ret i64 %shost
global:
{_slot("%tp", Slot.TABLE)}{_slot("%tc", Slot.TABLE_COUNT)}  br label %again
again:
  %table = load ptr, ptr %tp
  %count = load i64, ptr %tc
  br label %look
look:
  %n = phi i64 [ %count, %again ], [ %n1, %nextrow ]
  %none = icmp eq i64 %n, 0
  br i1 %none, label %reach, label %row1
row1:
  %n1 = sub i64 %n, 1
  %o = mul i64 %n1, 4
  %rp = getelementptr i64, ptr %table, i64 %o
  %start = load i64, ptr %rp
  %ep = getelementptr i64, ptr %rp, i64 1
  %end = load i64, ptr %ep
  %gend = add i64 %address, %size
  %after = icmp uge i64 %address, %start
  %before = icmp ule i64 %gend, %end
  %within = and i1 %after, %before
  br i1 %within, label %hit, label %nextrow
nextrow:
  br label %look
hit:
  %fp = getelementptr i64, ptr %rp, i64 2
  %readonly = load i64, ptr %fp
  %both = and i64 %readonly, %use
  %refused = icmp ne i64 %both, 0
  br i1 %refused, label %bad, label %good
good:
  store i64 %start, ptr %lowp
  %length = sub i64 %end, %start
  %span = sub i64 %length, %size
  store i64 %span, ptr %spanp
  %wp = getelementptr i64, ptr %rp, i64 3
  %flags = load i64, ptr %wp
  store i64 %flags, ptr %flagsp
  ret i64 %address
reach:
{_slot("%cp", Slot.REACH)}  %callback = load ptr, ptr %cp
  %reached = call i64 %callback(ptr %ctx, i64 %address, i64 %size, i64 %use)
  switch i64 %reached, label %bad [ i64 1, label %again
                                    i64 2, label %once ]
once:
  ret i64 %address
bad:
{_slot("%s0", Slot.SITE)}  store i64 %site, ptr %s0
{_slot("%s1", Slot.ADDRESS)}  store i64 %address, ptr %s1
{_slot("%s2", Slot.THREAD)}  store i64 %thread, ptr %s2
{_slot("%s3", Slot.AT_BLOCK)}  store i64 %block, ptr %s3
  ret i64 0
}}

define internal i1 @lanes(
    ptr %ctx, i64 %site, i64 %first, i64 %block, i64 %mask, i64 %size, i64 %count, i64 %use, i64 %space, i64 %width,
    ptr %addresses, ptr %values, i64 %row, i64 %mark, ptr %range
) noinline cold nounwind {{
entry:
  %bytes = mul i64 %size, %count
  %pitch = mul i64 %size, %width
  br label %next
next:
  %left = phi i64 [ %mask, %entry ], [ %rest, %done ], [ %rest, %byte ]
  %empty = icmp eq i64 %left, 0
  br i1 %empty, label %out, label %lane
lane:
  %l = call i64 @llvm.cttz.i64(i64 %left, i1 true)
  %less = sub i64 %left, 1
  %rest = and i64 %left, %less
  %ap = getelementptr i64, ptr %addresses, i64 %l
  %a = load i64, ptr %ap
  %thread = add i64 %first, %l
  %host = call i64 @one(
    ptr %ctx, i64 %site, i64 %thread, i64 %block, i64 %a, i64 %bytes, i64 %use, i64 %space, i64 %row
  )
  %failed = icmp eq i64 %host, 0
  br i1 %failed, label %fail, label %copy
copy:
  %hp = inttoptr i64 %host to ptr
  %lo = mul i64 %l, %size
  br label %part
part:
  %i = phi i64 [ 0, %copy ], [ %i1, %moved ]
  %io = mul i64 %i, %pitch
  %vo = add i64 %io, %lo
  %vp = getelementptr i8, ptr %values, i64 %vo
  %ho = mul i64 %i, %size
  %mp = getelementptr i8, ptr %hp, i64 %ho
  %reads = icmp eq i64 %use, {READ}
  %to = select i1 %reads, ptr %vp, ptr %mp
  %from = select i1 %reads, ptr %mp, ptr %vp
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %size, i1 false)
  br label %moved
moved:
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %count
  br i1 %more, label %part, label %done
done:
{_slot("%fp", Slot.FLAGS)}  %flags = load i64, ptr %fp
  %marked = icmp ne i64 %flags, 0
  br i1 %marked, label %marking, label %next
marking:
  %fa = add i64 %host, %flags
  %fptr = inttoptr i64 %fa to ptr
  %m8 = trunc i64 %mark to i8
  br label %byte
byte:
  %j = phi i64 [ 0, %marking ], [ %j1, %byte ]
  %bp = getelementptr i8, ptr %fptr, i64 %j
  %was = load i8, ptr %bp
  %is = or i8 %was, %m8
  store i8 %is, ptr %bp
  %j1 = add i64 %j, 1
  %bmore = icmp ult i64 %j1, %bytes
  br i1 %bmore, label %byte, label %next
fail:
  ret i1 true
out:
  %keeps = icmp ne ptr %range, null
  br i1 %keeps, label %keep, label %well
keep:
{_slot("%kept", Slot.LOW)}  %words = load <4 x i64>, ptr %kept, align 8
  store <4 x i64> %words, ptr %range, align 8
  br label %well
well:
  ret i1 false
}}

define internal i1 @place(
    ptr %ctx, ptr %range, i64 %address, i64 %need, i64 %extent, i64 %use, i64 %space
) noinline cold nounwind {{
entry:
  %isgeneric = icmp eq i64 %space, {GENERIC}
  %window = lshr i64 %address, {WINDOW_BITS}
  %isshared = icmp eq i64 %window, {SHARED_WINDOW >> WINDOW_BITS}
  %inshared = and i1 %isgeneric, %isshared
  br i1 %inshared, label %shared, label %global
shared:
{_slot("%sbp", Slot.SHARED_BYTES)}{_slot("%sp", Slot.SHARED)}  %sb = load i64, ptr %sbp
  %sbase = load i64, ptr %sp
  %sshift = sub i64 %sbase, {SHARED_WINDOW}
  %send = add i64 %sb, {SHARED_WINDOW}
  br label %found
global:
{_slot("%tp", Slot.TABLE)}{_slot("%tc", Slot.TABLE_COUNT)}  %table = load ptr, ptr %tp
  %count = load i64, ptr %tc
  br label %look
look:
  %n = phi i64 [ %count, %global ], [ %n1, %row ]
  %none = icmp eq i64 %n, 0
  br i1 %none, label %no, label %row
row:
  %n1 = sub i64 %n, 1
  %o = mul i64 %n1, 4
  %rp = getelementptr i64, ptr %table, i64 %o
  %start = load i64, ptr %rp
  %ep = getelementptr i64, ptr %rp, i64 1
  %end = load i64, ptr %ep
  %after = icmp uge i64 %address, %start
  %before = icmp ult i64 %address, %end
  %within = and i1 %after, %before
  br i1 %within, label %hit, label %look
hit:
  %fp = getelementptr i64, ptr %rp, i64 2
  %readonly = load i64, ptr %fp
  %both = and i64 %readonly, %use
  %wp = getelementptr i64, ptr %rp, i64 3
  %rowflags = load i64, ptr %wp
  %refused = icmp ne i64 %both, 0
  br i1 %refused, label %no, label %found
found:
  %low = phi i64 [ {SHARED_WINDOW}, %shared ], [ %start, %hit ]
  %high = phi i64 [ %send, %shared ], [ %end, %hit ]
  %shift = phi i64 [ %sshift, %shared ], [ 0, %hit ]
  %flags = phi i64 [ 0, %shared ], [ %rowflags, %hit ]
  %length = sub i64 %high, %low
  %holds = icmp uge i64 %length, %need
  %span = sub i64 %length, %extent
  %room = sub i64 %length, %need
  %off = sub i64 %address, %low
  %fits = icmp ule i64 %off, %room
  %good = and i1 %holds, %fits
  br i1 %good, label %store, label %no
store:
  store i64 %low, ptr %range
  %p1 = getelementptr i64, ptr %range, i64 1
  store i64 %span, ptr %p1
  %p2 = getelementptr i64, ptr %range, i64 2
  store i64 %shift, ptr %p2
  %p3 = getelementptr i64, ptr %range, i64 3
  store i64 %flags, ptr %p3
  ret i1 true
no:
  ret i1 false
}}
"""

DECLARED = frozenset(
    {
        "declare i64 @llvm.cttz.i64(i64, i1)",
        "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
    }
)
