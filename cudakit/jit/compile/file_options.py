"""Which compile options name files beside headers. Code made with one of them is not kept: the key has no such file.

Every option that reaches a tool is judged here. An option that is in no table counts as one that reads a file.

==========  ==================================  ==========================================================
tool        options come from                   of these read files
==========  ==================================  ==========================================================
NVRTC       fields of cuda.core.ProgramOptions  headers, which the closure has, and the fields outside `FIELDS`
ptxas       the field ``ptxas_options``         ``--options-file``, ``--apply-controls``, input files
nvJitLink   `cudakit.jit.compile.linked` alone  none: its inputs' bytes are hashed
tileiras    `cudakit.jit.compile.assemble`      none: ``--apply-controls`` and ``-l`` are never passed
==========  ==================================  ==========================================================
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

#: Fields of cuda.core.ProgramOptions that read nothing, or headers alone.
_FIELDS = """
relocatable_device_code extensible_whole_program debug lineinfo device_code_optimize ptxas_options
max_register_count ftz prec_sqrt prec_div fma use_fast_math extra_device_vectorization link_time_optimization
gen_opt_lto define_macro undefine_macro include_path use_bundled_headers pre_include no_source_include std
builtin_move_forward builtin_initializer_list disable_warnings restrict device_as_default_execution_space
device_int128 optimization_info no_display_error_number diag_error diag_suppress diag_warn brief_diagnostics
split_compile fdevice_syntax_only minimal no_cache device_float128 frandom_seed ofast_compile pch pch_verbose
pch_messages instantiate_templates_in_pch numba_debug
"""
#: Options of ptxas that read nothing.
_PTXAS_FLAGS = """
--compile-as-tools-patch -astoolspatch --compile-only -c --compiler-annotations -annotate --device-debug -g
--disable-optimizer-constants -disable-optimizer-consts --disable-warnings -w --dont-merge-basicblocks
-no-bb-merge --extensible-whole-program -ewp --g-tensor-memory-access-check -g-tmem-access-check
--generate-line-info -lineinfo --gno-fabric-access-check -gno-fabric-access-check
--gno-tensor-memory-access-check -gno-tmem-access-check --legacy-bar-warp-wide-behavior
-legacy-bar-warp-wide-behavior --make-errors-visible-at-exit -make-errors-visible-at-exit
--optimize-float-atomics -opt-fp-atomics --override-directive-values -override-directive-values
--preserve-relocs -preserve-relocs --return-at-end -ret-end --sp-bounds-check -sp-bounds-check
--suppress-async-bulk-multicast-advisory-warning -suppress-async-bulk-multicast-advisory-warning
--suppress-debug-info -suppress-debug-info --suppress-double-demote-warning -suppress-double-demote-warning
--suppress-position-independent-code-warning -suppress-position-independent-code-warning
--suppress-sparse-mma-advisory-info -suppress-sparse-mma-advisory-info --suppress-stack-size-warning
-suppress-stack-size-warning --verbose -v --verbose2 -v2 --warn-on-double-precision-use -warn-double-usage
--warn-on-local-memory-usage -warn-lmem-usage --warn-on-spills -warn-spills --warning-as-error -Werror
"""
#: The same, with a value after ``=`` or as the next option.
_PTXAS_VALUES = """
--Ofast-compile -Ofc --allow-expensive-optimizations -allow-expensive-optimizations --def-load-cache -dlcm
--def-store-cache -dscm --device-function-maxrregcount -func-maxrregcount --device-stack-protector
-device-stack-protector --enable-func-clone-sc -enable-func-clone-sc --entry -e --fmad -fmad
--force-load-cache -flcm --force-store-cache -fscm --machine -m --maxntid -maxntid --maxrregcount
-maxrregcount --minnctapersm -minnctapersm --opt-level -O -O0 -O1 -O2 -O3 --position-independent-code -pic
--register-usage-level -regUsageLevel --sanitize -sanitize --split-compile -split-compile
"""
FIELDS: Final = frozenset(_FIELDS.split())
PTXAS_FLAGS: Final = frozenset(_PTXAS_FLAGS.split())
PTXAS_VALUES: Final = frozenset(_PTXAS_VALUES.split())


def reads_files(extra: Iterable[tuple[str, Any]]) -> str | None:
    """Return why code made with further options of the compiler cannot be kept, or None."""
    for name, value in extra:
        if name not in FIELDS:
            return f"the option {name} reads or writes other files"
        if name == "ptxas_options" and value is not None:
            option = _reads_file([value] if isinstance(value, str) else value)
            if option is not None:
                return f"the option {option} of ptxas may read a file"
    return None


def _reads_file(options: Iterable[Any]) -> str | None:
    is_value = False
    for option in map(str, options):
        if is_value and not option.startswith("-"):
            is_value = False
            continue
        name, _, value = option.replace(" ", "=", 1).partition("=")
        if name not in PTXAS_VALUES and (name not in PTXAS_FLAGS or value):
            return option
        # Of -O2 the value is there already; what follows is an input file.
        is_value = not value and name in PTXAS_VALUES and not name[-1].isdigit()
    return None
