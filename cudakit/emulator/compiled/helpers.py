"""The functions that compiled kernels call where an access leaves the way that is checked at once."""

from __future__ import annotations

from cudakit.emulator.compiled.layout import Slot
from cudakit.emulator.machine.memory import LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, WINDOW_BITS

READ, WRITE = 0, 1
#: Where a range begins that holds for no address: with a span of 0, at one that no pointer has.
NOWHERE = -(1 << 63) + 1
GLOBAL, GENERIC, SHARED = 0, 1, 2


def _slot(name: str, slot: int) -> str:
    return f"  {name} = getelementptr i64, ptr %ctx, i64 {int(slot)}\n"


#: one(…): the host's address of a lane's access, or 0 with the error written down. LOW, HIGH (the span), SHIFT and
#: FLAGS (0 for none) of the launch's words say for which addresses the same holds: for none, a span of 0 at the
#: highest address.
HELPERS = f"""
define void @blame(
    ptr %ctx, i64 %site, i64 %first, i64 %block, i64 %mask, ptr %addresses
) noinline nounwind {{
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

define i64 @one(
    ptr %ctx, i64 %site, i64 %thread, i64 %block, i64 %address, i64 %size, i64 %use, i64 %space, i64 %row
) noinline nounwind {{
entry:
{_slot("%lowp", Slot.LOW)}{_slot("%spanp", Slot.HIGH)}
{_slot("%shiftp", Slot.SHIFT)}{_slot("%flagsp", Slot.FLAGS)}  store i64 {NOWHERE}, ptr %lowp
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
                                      i64 {LOCAL_WINDOW >> WINDOW_BITS}, label %inlocal
                                      i64 {PARAM_WINDOW >> WINDOW_BITS}, label %inparam ]
inparam:
  %po = sub i64 %address, {PARAM_WINDOW}
  %pend = add i64 %po, %size
{_slot("%pnp", Slot.PARAMETER_BYTES)}  %pn = load i64, ptr %pnp
  %pin = icmp ule i64 %pend, %pn
  %pread = icmp eq i64 %use, {READ}
  %pok = and i1 %pin, %pread
  br i1 %pok, label %param, label %bad
param:
{_slot("%pp", Slot.PARAMETERS)}  %pb = load i64, ptr %pp
  %ph = add i64 %pb, %po
  ret i64 %ph
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

define i1 @lanes(
    ptr %ctx, i64 %site, i64 %first, i64 %block, i64 %mask, i64 %size, i64 %count, i64 %use, i64 %space, i64 %width,
    ptr %addresses, ptr %values, i64 %row, i64 %mark, ptr %range
) noinline nounwind {{
entry:
  %bytes = mul i64 %size, %count
  %pitch = mul i64 %size, %width
  %am = sub i64 %bytes, 1
  %isshared = icmp eq i64 %space, {SHARED}
  %keeps = icmp ne ptr %range, null
  br i1 %isshared, label %inshared, label %elsewhere
inshared:
{_slot("%sbp", Slot.SHARED_BYTES)}{_slot("%sp", Slot.SHARED)}  %sb = load i64, ptr %sbp
  %sbase = load i64, ptr %sp
  %enough = icmp uge i64 %sb, %bytes
  %sless = sub i64 %sb, %bytes
  %slow = select i1 %enough, i64 0, i64 {NOWHERE}
  %sspan = select i1 %enough, i64 %sless, i64 0
  br label %next
elsewhere:
  br i1 %keeps, label %known, label %next
known:
  %k = load <4 x i64>, ptr %range, align 8
  %klow = extractelement <4 x i64> %k, i64 0
  %kspan = extractelement <4 x i64> %k, i64 1
  %kshift = extractelement <4 x i64> %k, i64 2
  %kflags = extractelement <4 x i64> %k, i64 3
  br label %next
next:
  %left = phi i64 [ %mask, %inshared ], [ %mask, %elsewhere ], [ %mask, %known ], [ %rest, %done ], [ %rest, %byte ]
  %low = phi i64 [ %slow, %inshared ], [ {NOWHERE}, %elsewhere ], [ %klow, %known ], [ %low1, %done ], [ %low1, %byte ]
  %span = phi i64 [ %sspan, %inshared ], [ 0, %elsewhere ], [ %kspan, %known ], [ %span1, %done ], [ %span1, %byte ]
  %shift = phi i64 [ %sbase, %inshared ], [ 0, %elsewhere ], [ %kshift, %known ], [ %shift1, %done ], [ %shift1, %byte ]
  %flags = phi i64 [ 0, %inshared ], [ 0, %elsewhere ], [ %kflags, %known ], [ %flags1, %done ], [ %flags1, %byte ]
  %empty = icmp eq i64 %left, 0
  br i1 %empty, label %well, label %lane
lane:
  %l = call i64 @llvm.cttz.i64(i64 %left, i1 true)
  %less = sub i64 %left, 1
  %rest = and i64 %left, %less
  %ap = getelementptr i64, ptr %addresses, i64 %l
  %a = load i64, ptr %ap
  %off = sub i64 %a, %low
  %inside = icmp ule i64 %off, %span
  %odd = and i64 %a, %am
  %even = icmp eq i64 %odd, 0
  %fine = and i1 %inside, %even
  br i1 %fine, label %near, label %far, !prof !0
near:
  %moved = add i64 %a, %shift
  br label %copy
far:
  %thread = add i64 %first, %l
  %found = call i64 @one(
    ptr %ctx, i64 %site, i64 %thread, i64 %block, i64 %a, i64 %bytes, i64 %use, i64 %space, i64 %row
  )
  %failed = icmp eq i64 %found, 0
  br i1 %failed, label %fail, label %keep
keep:
{_slot("%kept", Slot.LOW)}  %w = load <4 x i64>, ptr %kept, align 8
  %wlow = extractelement <4 x i64> %w, i64 0
  %wspan = extractelement <4 x i64> %w, i64 1
  %wshift = extractelement <4 x i64> %w, i64 2
  %wflags = extractelement <4 x i64> %w, i64 3
  br i1 %keeps, label %remember, label %copy
remember:
  store <4 x i64> %w, ptr %range, align 8
  br label %copy
copy:
  %host = phi i64 [ %moved, %near ], [ %found, %keep ], [ %found, %remember ]
  %low1 = phi i64 [ %low, %near ], [ %wlow, %keep ], [ %wlow, %remember ]
  %span1 = phi i64 [ %span, %near ], [ %wspan, %keep ], [ %wspan, %remember ]
  %shift1 = phi i64 [ %shift, %near ], [ %wshift, %keep ], [ %wshift, %remember ]
  %flags1 = phi i64 [ %flags, %near ], [ %wflags, %keep ], [ %wflags, %remember ]
  %hp = inttoptr i64 %host to ptr
  %lo = mul i64 %l, %size
  %reads = icmp eq i64 %use, {READ}
  br label %part
part:
  %i = phi i64 [ 0, %copy ], [ %i1, %went ]
  %io = mul i64 %i, %pitch
  %vo = add i64 %io, %lo
  %vp = getelementptr i8, ptr %values, i64 %vo
  %ho = mul i64 %i, %size
  %mp = getelementptr i8, ptr %hp, i64 %ho
  %to = select i1 %reads, ptr %vp, ptr %mp
  %from = select i1 %reads, ptr %mp, ptr %vp
  switch i64 %size, label %other [ i64 1, label %s1
                                   i64 2, label %s2
                                   i64 4, label %s4
                                   i64 8, label %s8 ]
s1:
  %x1 = load i8, ptr %from
  store i8 %x1, ptr %to
  br label %went
s2:
  %x2 = load i16, ptr %from, align 1
  store i16 %x2, ptr %to, align 1
  br label %went
s4:
  %x4 = load i32, ptr %from, align 1
  store i32 %x4, ptr %to, align 1
  br label %went
s8:
  %x8 = load i64, ptr %from, align 1
  store i64 %x8, ptr %to, align 1
  br label %went
other:
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %size, i1 false)
  br label %went
went:
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %count
  br i1 %more, label %part, label %done
done:
  %marked = icmp ne i64 %flags1, 0
  br i1 %marked, label %marking, label %next
marking:
  %fa = add i64 %host, %flags1
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
well:
  ret i1 false
}}

define i1 @place(
    ptr %ctx, ptr %range, i64 %address, i64 %need, i64 %extent, i64 %use, i64 %space
) noinline nounwind {{
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

define i1 @arrive(
    ptr %ctx, i64 %space, i64 %address, i64 %comes, i64 %owed, i64 %gone, ptr %token
) noinline nounwind {{
entry:
{_slot("%sbp", Slot.SHARED_BYTES)}{_slot("%sp", Slot.SHARED)}  %sb = load i64, ptr %sbp
  %sbase = load i64, ptr %sp
  %named = icmp eq i64 %space, {SHARED}
  %window = select i1 %named, i64 0, i64 {SHARED_WINDOW}
  %off = sub i64 %address, %window
  %end = add i64 %off, 8
  %low3 = and i64 %off, 7
  %even = icmp eq i64 %low3, 0
  %below = icmp ult i64 %off, %sb
  %within = icmp ule i64 %end, %sb
  %ok0 = and i1 %even, %below
  %ok = and i1 %ok0, %within
  br i1 %ok, label %inside, label %no
inside:
  %at = add i64 %sbase, %off
  %p = inttoptr i64 %at to ptr
  %word = load i64, ptr %p
  %expected0 = and i64 %word, 1048575
  %expected = sub i64 %expected0, %gone
  %up20 = lshr i64 %word, 20
  %pending0 = and i64 %up20, 1048575
  %pending = sub i64 %pending0, %comes
  %left2 = shl i64 %word, 2
  %owed0 = ashr i64 %left2, 42
  %owes = add i64 %owed0, %owed
  %made = and i64 %word, {1 << 62}
  %ismade = icmp ne i64 %made, 0
  %enough = icmp sge i64 %pending, 0
  %owesabs = call i64 @llvm.abs.i64(i64 %owes, i1 false)
  %few = icmp ule i64 %owesabs, 1048575
  %good0 = and i1 %ismade, %enough
  %good = and i1 %good0, %few
  br i1 %good, label %change, label %no
change:
  %both = or i64 %pending, %owes
  %complete = icmp eq i64 %both, 0
  %now = select i1 %complete, i64 %expected, i64 %pending
  %f20 = shl i64 %now, 20
  %owesbits = and i64 %owes, 4194303
  %f40 = shl i64 %owesbits, 40
  %flip = select i1 %complete, i64 {-(1 << 63)}, i64 0
  %phase0 = and i64 %word, {-(1 << 63)}
  %phase = xor i64 %phase0, %flip
  %w1 = or i64 %expected, %f20
  %w2 = or i64 %w1, %f40
  %w3 = or i64 %w2, {1 << 62}
  %w4 = or i64 %w3, %phase
  store i64 %w4, ptr %p
  store i64 %word, ptr %token
  ret i1 true
no:
  ret i1 false
}}

define i64 @bytes(
    ptr %ctx, i64 %thread, i64 %block, i64 %address, i64 %count, i64 %use, i64 %space
) noinline nounwind {{
entry:
  %host = call i64 @one(
    ptr %ctx, i64 0, i64 %thread, i64 %block, i64 %address, i64 16, i64 %use, i64 %space, i64 0
  )
  %failed = icmp eq i64 %host, 0
  br i1 %failed, label %no, label %begun
begun:
{_slot("%lowp", Slot.LOW)}{_slot("%spanp", Slot.HIGH)}  %low = load i64, ptr %lowp
  %span = load i64, ptr %spanp
  %off = sub i64 %address, %low
  %last0 = add i64 %off, %count
  %last = sub i64 %last0, 16
  %fits = icmp ule i64 %last, %span
  br i1 %fits, label %yes, label %no
yes:
  ret i64 %host
no:
  ret i64 0
}}

define void @note(i64 %host, i64 %flags, i64 %count, i64 %mark) noinline nounwind {{
entry:
  %marked = icmp ne i64 %flags, 0
  br i1 %marked, label %marking, label %done
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
  %more = icmp ult i64 %j1, %count
  br i1 %more, label %byte, label %done
done:
  ret void
}}

define i1 @bulk(
    ptr %ctx, i64 %thread, i64 %block, i64 %tospace, i64 %ofspace, i64 %to, i64 %of, i64 %count, i64 %barrier,
    i64 %tomark, i64 %ofmark
) noinline nounwind {{
entry:
  %token = alloca i64
  %a0 = or i64 %to, %of
  %a1 = or i64 %a0, %count
  %odd = and i64 %a1, 15
  %even = icmp eq i64 %odd, 0
  %some = icmp ne i64 %count, 0
  %usual = and i1 %even, %some
  br i1 %usual, label %from, label %no
from:
  %source = call i64 @bytes(
    ptr %ctx, i64 %thread, i64 %block, i64 %of, i64 %count, i64 {READ}, i64 %ofspace
  )
{_slot("%flagsp", Slot.FLAGS)}  %offlags = load i64, ptr %flagsp
  %unread = icmp eq i64 %source, 0
  br i1 %unread, label %no, label %there
there:
  %target = call i64 @bytes(
    ptr %ctx, i64 %thread, i64 %block, i64 %to, i64 %count, i64 {WRITE}, i64 %tospace
  )
  %toflags = load i64, ptr %flagsp
  %unwritten = icmp eq i64 %target, 0
  br i1 %unwritten, label %no, label %move
move:
  %tp = inttoptr i64 %target to ptr
  %sp = inttoptr i64 %source to ptr
  call void @llvm.memmove.p0.p0.i64(ptr %tp, ptr %sp, i64 %count, i1 false)
  call void @note(i64 %source, i64 %offlags, i64 %count, i64 %ofmark)
  call void @note(i64 %target, i64 %toflags, i64 %count, i64 %tomark)
  %completes = icmp sge i64 %barrier, 0
  br i1 %completes, label %complete, label %yes
complete:
  %less = sub i64 0, %count
  %counted = call i1 @arrive(
    ptr %ctx, i64 {SHARED}, i64 %barrier, i64 0, i64 %less, i64 0, ptr %token
  )
  ret i1 %counted
yes:
  ret i1 true
no:
  ret i1 false
}}

declare i64 @llvm.abs.i64(i64, i1)
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
declare i64 @llvm.cttz.i64(i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
!0 = !{{!"branch_weights", i32 10000, i32 1}}
"""

#: As what kernels know them.
DECLARED = """
declare void @blame(ptr, i64, i64, i64, i64, ptr) cold nounwind
declare i64 @one(ptr, i64, i64, i64, i64, i64, i64, i64, i64) cold nounwind
declare i1 @lanes(ptr, i64, i64, i64, i64, i64, i64, i64, i64, i64, ptr, ptr, i64, i64, ptr) nounwind
declare i1 @place(ptr, ptr, i64, i64, i64, i64, i64) cold nounwind
declare i1 @arrive(ptr, i64, i64, i64, i64, i64, ptr) nounwind
declare i1 @bulk(ptr, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64) nounwind
"""
