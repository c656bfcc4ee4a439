// Reductions whose map, combination and result are expressions: what `cudakit.reduction` generates calls these with
//   Fold::cudakit_state                      what is known of some of the elements
//   Fold::cudakit_identity()                 of none, where Fold::CUDAKIT_HAS_IDENTITY
//   Fold::cudakit_map(values..., i)          of one: its values in the inputs, and its number
//   Fold::cudakit_reduce(a, b)               of two sets of elements
//   Fold::CUDAKIT_ADDS_VALUES                whether that is the sum, and the map the one input itself
//   Fold::cudakit_post(a, n, outputs...)     writes the results of n elements
// They run in the ways of every other reduction (<cudakit/reduce/ways.cuh>).
#pragma once

#include <cudakit/reduce/reducer.cuh>
#include <cudakit/reduce/ways.cuh>

namespace cudakit {

// Structs, as NVRTC 13.0 takes no generic lambda here.
template <typename Fold>
struct mapping {
    long long i;
    template <typename... Values>
    __device__ typename Fold::cudakit_state operator()(const Values&... values) const {
        return Fold::cudakit_map(values..., i);
    }
};
template <typename Fold>
struct posting {
    const typename Fold::cudakit_state& state;
    long long row, n;
    template <typename... Out>
    __device__ void operator()(Out*... out) const {
        Fold::cudakit_post(state, n, out[row]...);
    }
};

/// A reducer (<cudakit/reduce/reducer.cuh>) of expressions.
template <typename Fold, bool HAS_IDENTITY = Fold::CUDAKIT_HAS_IDENTITY>
struct expressed {
    using State = typename Fold::cudakit_state;
    static __device__ State identity() { return Fold::cudakit_identity(); }
    static __device__ State combine(const State& a, const State& b) { return Fold::cudakit_reduce(a, b); }
    template <int COUNT, typename Values, typename At>
    static __device__ State fold(const State& state, const Values (&values)[COUNT], const At& at) {
        return Fold::cudakit_reduce(state, together(values, at));
    }
    static __device__ const State& result(const State& state) { return state; }
    static __device__ State after(const State& initial, const State& state) { return combine(initial, state); }

    /// What a few elements come to.
    template <int COUNT, typename Values, typename At>
    static __device__ State together(const Values (&values)[COUNT], const At& at) {
        if constexpr (Fold::CUDAKIT_ADDS_VALUES && commutes<State>) return folded<plus, State>::together(values);
        else return tree<0, COUNT>(values, at);
    }

private:
    /// Pairwise, so that an error grows with the logarithm of COUNT and no step waits for all that came before.
    template <int FIRST, int COUNT, int SIZE, typename Values, typename At>
    static __device__ State tree(const Values (&values)[SIZE], const At& at) {
        if constexpr (COUNT == 1) {
            return call_of(mapping<Fold>{at(FIRST)}, values[FIRST]);
        } else {
            const State low = tree<FIRST, COUNT / 2>(values, at);
            return Fold::cudakit_reduce(low, tree<FIRST + COUNT / 2, COUNT - COUNT / 2>(values, at));
        }
    }
};
template <typename Fold>
struct expressed<Fold, false> {
    using Bare = expressed<Fold, true>;
    using State = perhaps<typename Fold::cudakit_state>;
    static __device__ State identity() {
        State state;
        state.is_there = false;
        return state;
    }
    static __device__ State combine(const State& a, const State& b) {
        if (!a.is_there) return b;
        if (!b.is_there) return a;
        return {Fold::cudakit_reduce(a.value, b.value), true};
    }
    template <int COUNT, typename Values, typename At>
    static __device__ State fold(const State& state, const Values (&values)[COUNT], const At& at) {
        const auto more = Bare::together(values, at);
        if (!state.is_there) return {more, true};
        return {Fold::cudakit_reduce(state.value, more), true};
    }
    static __device__ const typename Fold::cudakit_state& result(const State& state) { return state.value; }
    static __device__ typename Fold::cudakit_state after(const typename Fold::cudakit_state& initial, const State& state) {
        return state.is_there ? Fold::cudakit_reduce(initial, state.value) : initial;
    }
};

template <typename Fold>
using state_of = typename expressed<Fold>::State;

/// Fold::cudakit_post to element `row` of each output.
template <typename Fold, typename Outputs>
struct posted {
    Outputs outputs;
    __device__ void operator()(long long row, const state_of<Fold>& state, long long n) const {
        call_with(posting<Fold>{expressed<Fold>::result(state), row, n}, outputs);
    }
};
template <typename Fold, typename Outputs>
__device__ posted<Fold, Outputs> posted_to(const Outputs& outputs) {
    return {outputs};
}

/// The same of `initial` and all elements.
template <typename Fold, typename Outputs>
struct posted_after {
    Outputs outputs;
    typename Fold::cudakit_state initial;
    __device__ void operator()(long long row, const state_of<Fold>& state, long long n) const {
        call_with(posting<Fold>{expressed<Fold>::after(initial, state), row, n}, outputs);
    }
};
template <typename Fold, typename Outputs, typename Initial>
__device__ posted_after<Fold, Outputs> posted_to(const Outputs& outputs, const Initial& initial) {
    return {outputs, as<typename Fold::cudakit_state>(initial)};
}

}  // namespace cudakit
