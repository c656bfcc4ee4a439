// A scan of expressions along long lines, by <cudakit/scan/line_scan.cuh>; see <cudakit/scan/expression.cuh>.
#pragma once

#include <cudakit/scan/keys.cuh>
#include <cudakit/scan/line_scan.cuh>
#include <cudakit/scan/result.cuh>

namespace cudakit {

namespace detail {
// The shared memory of a tile: each array that has several elements in a stretch of its own, which begins as far behind
// 128 bytes as the tile does behind 16 in global memory: bulk copies want the 16, and are slower where not at 128.
inline constexpr int STRETCH_ALIGNMENT = 128;
template <typename Line>
struct staged {
    static constexpr bool IS_STAGED = false, IS_WORD = false;
    static constexpr int BYTES = 0, AHEAD = 0;
};
template <typename To, typename From>
struct staged<line_input<To, From, spacing::adjacent>> {
    static constexpr bool IS_STAGED = true;
    static constexpr int BYTES = sizeof(From), AHEAD = 0;  // elements before the tile's first
    using Stored = From;
    static constexpr bool IS_WORD = sizeof(From) == alignof(From) && 16 % sizeof(From) == 0;
    static __device__ long long step_of(const line_input<To, From, spacing::adjacent>&) { return 1; }
};
template <typename To, typename From>
struct staged<line_input<To, From, spacing::apart>> : staged<line_input<To, From, spacing::adjacent>> {
    static __device__ long long step_of(const line_input<To, From, spacing::apart>& line) { return line.step; }
};
template <typename K, spacing SPACING>
struct staged<keys_line<K, SPACING>> : staged<line_input<K, K, spacing::adjacent>> {
    static constexpr int AHEAD = 1;
    static __device__ long long step_of(const keys_line<K, SPACING>& line) { return line.apart(); }
};
// Whether tiles begin at 16 bytes of the array; IS_CHOSEN: they do of another.
template <bool IS_CHOSEN, typename Line>
inline constexpr bool is_at_16 = !IS_CHOSEN && staged<Line>::IS_WORD;
template <int TILE, bool IS_CHOSEN, typename Line>
inline constexpr int stretch_bytes =
    staged<Line>::IS_STAGED
        ? TILE * staged<Line>::BYTES + STRETCH_ALIGNMENT * (staged<Line>::AHEAD + !is_at_16<IS_CHOSEN, Line>)
        : 0;

// Whether a line's values are read as they are stored.
template <typename Line>
inline constexpr bool is_unchanged = false;
template <typename T, spacing SPACING>
inline constexpr bool is_unchanged<line_input<T, T, SPACING>> = true;
template <spacing SPACING>
inline constexpr bool is_unchanged<line_input<bool, truth, SPACING>> = true;

// Elements that are combined at once, of VEC that are scanned: as many as a load of 16 bytes has, if registers hold them.
template <int VEC, int ITEM_BYTES, typename... Lines>
__device__ constexpr int combined_at_once() {
    int bytes = 1, count = VEC;
    bool words = true;
    ((words = words && (staged<Lines>::IS_WORD || !staged<Lines>::IS_STAGED),
      bytes = staged<Lines>::BYTES > bytes ? staged<Lines>::BYTES : bytes), ...);
    if (words && (staged<Lines>::IS_STAGED || ...)) count = 16 / bytes;
    return count > VEC && count * ITEM_BYTES <= 128 ? count : VEC;
}

// IS_CHOSEN: whether tiles begin at 16 bytes of another array.
template <bool IS_CHOSEN, typename... Lines>
struct stages {
    template <int TILE>
    static constexpr int TOTAL = 0;
    static __device__ int shift(const several<>&) { return 0; }
    template <int TILE>
    static __device__ unsigned int load(const several<>&, unsigned char*, const line_cover&, int, mbarrier&) {
        return 0;
    }
    template <int TILE, int COUNT>
    static __device__ several_packs<COUNT> read(const several<>&, unsigned char*, const line_cover&, int, int) {
        return {};
    }
};
template <bool IS_CHOSEN, typename Line, typename... Lines>
struct stages<IS_CHOSEN, Line, Lines...> {
    static constexpr bool IS_STAGED = staged<Line>::IS_STAGED, IS_FILLABLE = staged<Line>::IS_WORD && is_unchanged<Line>;
    using Others = stages<IS_CHOSEN || IS_STAGED, Lines...>;
    template <int TILE>
    static constexpr int TOTAL = stretch_bytes<TILE, IS_CHOSEN, Line> + Others::template TOTAL<TILE>;

    /// Elements by which tiles begin before the line, so that they begin at 16 bytes of the first array that can.
    static __device__ int shift(const several<Line, Lines...>& lines) {
        if constexpr (IS_STAGED) {
            const unsigned long long address = reinterpret_cast<unsigned long long>(lines.first.x);
            return staged<Line>::IS_WORD ? address % 16 / staged<Line>::BYTES : 0;
        } else {
            return Others::shift(lines.others);
        }
    }
    /// Where the tile's first element lies behind 16 bytes.
    static __device__ int phase(const Line& line, int shift) {
        if (is_at_16<IS_CHOSEN, Line> || staged<Line>::step_of(line) != 1) return 0;
        return (reinterpret_cast<unsigned long long>(line.x) - shift * staged<Line>::BYTES) % 16;
    }
    template <int TILE>
    static __device__ unsigned int load(
        const several<Line, Lines...>& lines, unsigned char* stage, const line_cover& part, int shift, mbarrier& full) {
        unsigned int bytes = 0;
        if constexpr (IS_STAGED) {
            using From = typename staged<Line>::Stored;
            constexpr int AHEAD = staged<Line>::AHEAD;
            From* const to = reinterpret_cast<From*>(stage + STRETCH_ALIGNMENT * AHEAD + phase(lines.first, shift));
            const line_of<const From> line{lines.first.x, staged<Line>::step_of(lines.first)};
            const int begin = part.first + part.begin > 0 ? part.begin - AHEAD : part.begin;
            bytes = load_span(to, line, part.first, begin, part.end, full);
        }
        unsigned char* const next = stage + stretch_bytes<TILE, IS_CHOSEN, Line>;
        return bytes + Others::template load<TILE>(lines.others, next, part, shift, full);
    }
    /// Neighbours from element `from` of a stage on; what the line does not cover is anything.
    template <int TILE, int COUNT>
    static __device__ several_packs<COUNT, Line, Lines...> read(
        const several<Line, Lines...>& lines, unsigned char* stage, const line_cover& part, int from, int shift) {
        unsigned char* const next = stage + stretch_bytes<TILE, IS_CHOSEN, Line>;
        return {read_one<COUNT>(lines.first, stage, from, shift),
                Others::template read<TILE, COUNT>(lines.others, next, part, from, shift)};
    }
    template <int COUNT>
    static __device__ typename Line::template pack<COUNT> read_one(
        const Line& line, unsigned char* stage, int from, int shift) {
        if constexpr (IS_STAGED) {
            using From = typename staged<Line>::Stored;
            constexpr int AHEAD = staged<Line>::AHEAD;
            const int behind = phase(line, shift);
            const From* const source = reinterpret_cast<const From*>(stage + STRETCH_ALIGNMENT * AHEAD + behind) + from;
            From values[AHEAD + COUNT];
            if constexpr (AHEAD) values[0] = source[-1];
            if constexpr (staged<Line>::IS_WORD && is_word(sizeof(From) * COUNT)) {
                if (behind == 0) {
                    const auto word = load_pack<COUNT>(source);
                    memcpy(values + AHEAD, &word, sizeof(word));
                } else {
#pragma unroll
                    for (int k = 0; k < COUNT; ++k) values[AHEAD + k] = source[k];
                }
            } else {
#pragma unroll
                for (int k = 0; k < COUNT; ++k) values[AHEAD + k] = source[k];
            }
            typename Line::template pack<COUNT> pack;
            memcpy(&pack, values, sizeof(values));
            return pack;
        } else {
            return line.template load<COUNT>(0);
        }
    }
};
}  // namespace detail

/// One line of several arrays and of results, for `line_scan`.
template <typename Scan, int NEIGHBOURS, scan_pass PASS, typename Inputs, typename Outputs, typename Ends>
struct expression_line;
template <typename Scan, int NEIGHBOURS, scan_pass PASS, typename... Inputs, typename Outputs, typename Ends>
struct expression_line<Scan, NEIGHBOURS, PASS, several<Inputs...>, Outputs, Ends> {
    using Rule = scan_rule<Scan>;
    using Item = typename Rule::Item;
    using Stages = detail::stages<false, Inputs...>;
    static constexpr int VEC = NEIGHBOURS, EACH = detail::combined_at_once<VEC, sizeof(Item), Inputs...>();
    template <int TILE>
    static constexpr int STAGE_BYTES = Stages::template TOTAL<TILE>;
    static constexpr bool IS_FILLED = Scan::CUDAKIT_HAS_NEUTRAL && Stages::IS_FILLABLE;
    static constexpr bool IS_READ_AGAIN = Scan::CUDAKIT_OUTPUT_SEES_INPUTS && PASS != scan_pass::last;

    several<Inputs...> inputs;
    result_line<Scan, VEC, PASS, Outputs, Ends> results;
    long long n;
    int early;

    __device__ expression_line(
        const several<Inputs...>& inputs, const Outputs& outputs, const Ends& ends, long long n)
        : inputs(inputs), results{outputs, ends}, n(n), early(Stages::shift(inputs)) {}
    __device__ int shift() const { return early; }
    template <int TILE>
    __device__ unsigned int load(unsigned char* stage, const line_cover& part, mbarrier& full) const {
        return Stages::template load<TILE>(inputs, stage, part, early, full);
    }
    /// Ends of the stage that the line does not cover, as far as others read: with what changes nothing, where a value
    /// of the first input does that, so that no element is asked for whether it is there.
    template <int SPAN>
    __device__ void fill(unsigned char* stage, const line_cover& part) const {
        if constexpr (IS_FILLED) {
            using T = typename decltype(inputs.first)::Value;
            T* const to = reinterpret_cast<T*>(stage);
            const T nothing = Scan::template cudakit_neutral<T>();
            const int end = (part.end + SPAN - 1) / SPAN * SPAN;
            for (int i = threadIdx.x; i < part.begin; i += 32) to[i] = nothing;
#pragma unroll 4
            for (int i = part.end + threadIdx.x; i < end; i += 32) to[i] = nothing;
        }
        before_bulk_loads();  // the stage's ends came by ordinary stores
    }
    template <int TILE, int COUNT>
    __device__ void read(Item (&item)[COUNT], unsigned char* stage, const line_cover& part, int from) const {
        const auto packs = Stages::template read<TILE, COUNT>(inputs, stage, part, from, early);
        const auto item_of = [&](int v) {
            return call_with(detail::scan_mapping<Scan>{part.first + from + v, n}, packs.value(v));
        };
#pragma unroll
        for (int v = 0; v < COUNT; ++v) {
            if (IS_FILLED || (from + v >= part.begin && from + v < part.end)) item[v] = item_of(v);
            else item[v] = Rule::Combine::template identity<Item>();
        }
    }
    __device__ bool target() const { return detail::are_packed<VEC>(results.outputs, early); }
    template <int TILE>
    __device__ void store(
        bool packed, const Item (&item)[VEC], const Item& up_to, Item& before, int lane, unsigned char* stage,
        const line_cover& part, int from, long long) const {
        const typename Rule::Combine combine;
        const Item lanes_before = shuffle_up(up_to, 1);
        const Item running = lane ? combine(before, lanes_before) : before;
        before = combine(before, shuffle(up_to, 31));
        const int begin = part.begin - from, end = part.end - from;
        typename detail::packs_of<VEC, several<Inputs...>>::type packs;
        if constexpr (IS_READ_AGAIN) packs = Stages::template read<TILE, VEC>(inputs, stage, part, from, early);
        results.write(
            item, running, packs, part.first + from, begin > 0 ? begin : 0, end < VEC ? end : VEC, n, packed);
    }
};

/// As `line_scan`; blockIdx.y is a line's number.
template <scan_pass PASS, int SPACINGS, int WRITINGS, int RANK, int VEC, int ROWS, int SCANNERS, int REDUCERS>
struct by_line {
    static constexpr int BLOCK = 32 * (2 + REDUCERS + SCANNERS), RESIDENT = 1;

    template <typename Scan, typename Inputs, typename Outputs, typename Ends, typename Layout>
    static __device__ void run(
        const Inputs& inputs, const Outputs& outputs, const Ends& ends, unsigned char* status, const Layout& layout) {
        const long long line = blockIdx.y;
        const line_places<RANK, entries_of<decltype(layout.start)>> from(layout, layout.start, layout.steps, line);
        const line_places<RANK, entries_of<decltype(layout.out_start)>> to(
            layout, layout.out_start, layout.out_steps, line);
        const auto in = lines_from<SPACINGS>(inputs, from, layout.step);
        const auto out = outputs_from<WRITINGS>(outputs, to, layout.out_step);
        run_on<Scan>(in, out, ends.of(line), status, layout.length, static_cast<int>(layout.stages));
    }

private:
    template <typename Scan, typename In, typename Out, typename Ends>
    static __device__ void run_on(
        const In& in, const Out& out, const Ends& ends, unsigned char* status, long long n, int stages) {
        using Lines = expression_line<Scan, VEC, PASS, In, Out, Ends>;
        using Run = line_scan<Lines, ROWS, SCANNERS, REDUCERS>;
        extern __shared__ __align__(128) unsigned char ring[];
        __shared__ typename Run::storage shared;
        const long long line = blockIdx.y;
        const long long before = line * (n / Run::TILE + 2);  // one more where a line does not start at 16 bytes
        Run{Lines(in, out, ends, n), status, before, n, stages, ring, shared}.run();
    }
};

}  // namespace cudakit
