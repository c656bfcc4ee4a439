// What C++ makes of a number: the judge of what reaches a kernel. It shares nothing with cudakit, NumPy or NVRTC.
//
// `judge` writes the bytes of `T value = number;` and returns their count, or `refused` for a number that T cannot hold
// (integers exactly; real numbers rounded to the nearest, none becoming infinite). `nan` is added for a NaN that had
// another type before, of which any NaN may come.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>

namespace {
constexpr int refused = -1, unknown = -2, nan = 256;

struct Number {
    bool real = false, huge = false;
    __int128 integer = 0;
    long double value = 0, imaginary = 0;
    std::string text;
};

template <typename T>
T read(const unsigned char* bytes) {
    T value;
    std::memcpy(&value, bytes, sizeof value);
    return value;
}

/// A float with `bits` bits of significand (the hidden one included), the least normal exponent, and how it is encoded.
struct Small {
    int bits, least, width;
    bool infinite;
    long double largest;
};
constexpr Small half{11, -14, 16, true, 65504.0L}, bfloat{8, -126, 16, true, 0x1.fep127L};
constexpr Small e4m3{4, -6, 8, false, 448.0L}, e5m2{3, -14, 8, true, 57344.0L};

long double decode(const Small& form, unsigned bits) {
    const int mantissa_bits = form.bits - 1;
    const unsigned sign = bits >> (form.width - 1), mantissa = bits & ((1u << mantissa_bits) - 1);
    const unsigned exponent = (bits >> mantissa_bits) & ((1u << (form.width - 1 - mantissa_bits)) - 1);
    const unsigned top = (1u << (form.width - 1 - mantissa_bits)) - 1;
    long double value;
    if (form.infinite && exponent == top) value = mantissa ? NAN : INFINITY;
    else if (!form.infinite && exponent == top && mantissa == (1u << mantissa_bits) - 1) value = NAN;
    else if (exponent == 0) value = std::ldexp((long double)mantissa, form.least - mantissa_bits);
    else value = std::ldexp((long double)(mantissa + (1u << mantissa_bits)), form.least + (int)exponent - 1 - mantissa_bits);
    return sign ? -value : value;
}

int encode(const Small& form, long double value, unsigned char* out) {
    const int size = form.width / 8, mantissa_bits = form.bits - 1;
    unsigned bits;
    int extra = 0;
    const unsigned top = ((1u << (form.width - 1 - mantissa_bits)) - 1) << mantissa_bits;
    if (std::isnan(value)) {
        bits = top | (form.infinite ? 1u << (mantissa_bits - 1) : (1u << mantissa_bits) - 1);
        extra = nan;
    } else if (std::isinf(value)) {
        if (!form.infinite) return refused;
        bits = top;
    } else {
        int exponent;
        const long double absolute = std::fabs(value);
        std::frexp(absolute, &exponent);
        const int unit = std::max(exponent - form.bits, form.least - mantissa_bits);
        const long double steps = std::nearbyint(std::ldexp(absolute, -unit));  // to even in the default mode
        if (std::ldexp(steps, unit) > form.largest) return refused;
        unsigned long long whole = (unsigned long long)steps;
        int shift = unit;
        if (whole >> form.bits) whole >>= 1, ++shift;
        bits = whole >> mantissa_bits ? (unsigned)(((shift + mantissa_bits - form.least + 1) << mantissa_bits) | (whole & ((1u << mantissa_bits) - 1)))
                                      : (unsigned)whole;
    }
    if (std::signbit(value)) bits |= 1u << (form.width - 1);
    std::memcpy(out, &bits, size);
    return size + extra;
}

template <typename T>
int put_integer(const Number& given, unsigned char* out) {
    __int128 integer = given.integer;
    if (given.huge || given.imaginary != 0) return refused;
    if (given.real) {
        if (!(std::fabs(given.value) < 0x1p65L) || given.value != std::trunc(given.value)) return refused;
        integer = (__int128)given.value;
    }
    if (integer < (__int128)std::numeric_limits<T>::min() || integer > (__int128)std::numeric_limits<T>::max()) return refused;
    const T value = (T)integer;
    std::memcpy(out, &value, sizeof value);
    return sizeof value;
}

float from_text(const std::string& text, float) { return std::strtof(text.c_str(), nullptr); }
double from_text(const std::string& text, double) { return std::strtod(text.c_str(), nullptr); }

template <typename T>
int put_real(const Number& given, unsigned char* out, long double part) {
    const T value = given.real ? (T)part : from_text(given.text, T());
    if (std::isinf(value) && !(given.real && std::isinf(part))) return refused;
    std::memcpy(out, &value, sizeof value);
    return sizeof value + (std::isnan(value) ? nan : 0);
}

template <typename T>
int put_complex(const Number& given, unsigned char* out) {
    const int first = put_real<T>(given, out, given.value);
    if (first < 0) return first;
    Number imaginary = given;
    imaginary.real = true;
    const int second = put_real<T>(imaginary, out + sizeof(T), given.imaginary);
    return second < 0 ? second : 2 * sizeof(T) + (((first | second) & nan) ? nan : 0);
}

template <typename T>
void take_integer(Number& number, const unsigned char* bytes) {
    number.integer = read<T>(bytes);
    const __int128 value = number.integer;
    number.text = value < 0 ? std::to_string((long long)value) : std::to_string((unsigned long long)value);
}

bool take(const std::string& from, const unsigned char* bytes, Number& number) {
    if (from == "integer") {  // decimal digits, any number of them
        number.text = (const char*)bytes;
        const bool minus = number.text[0] == '-';
        if (number.text.size() > 30) number.huge = true;
        else for (const char digit : number.text.substr(minus)) number.integer = number.integer * 10 + (digit - '0');
        if (minus) number.integer = -number.integer;
    } else if (from == "bool") take_integer<unsigned char>(number, bytes);
    else if (from == "i1") take_integer<std::int8_t>(number, bytes);
    else if (from == "u1") take_integer<std::uint8_t>(number, bytes);
    else if (from == "i2") take_integer<std::int16_t>(number, bytes);
    else if (from == "u2") take_integer<std::uint16_t>(number, bytes);
    else if (from == "i4") take_integer<std::int32_t>(number, bytes);
    else if (from == "u4") take_integer<std::uint32_t>(number, bytes);
    else if (from == "i8") take_integer<std::int64_t>(number, bytes);
    else if (from == "u8") take_integer<std::uint64_t>(number, bytes);
    else {
        number.real = true;
        if (from == "f2") number.value = decode(half, read<std::uint16_t>(bytes));
        else if (from == "bf2") number.value = decode(bfloat, read<std::uint16_t>(bytes));
        else if (from == "e4m3") number.value = decode(e4m3, bytes[0]);
        else if (from == "e5m2") number.value = decode(e5m2, bytes[0]);
        else if (from == "f4") number.value = read<float>(bytes);
        else if (from == "f8") number.value = read<double>(bytes);
        else if (from == "f16") number.value = read<long double>(bytes);
        else if (from == "c8") number.value = read<float>(bytes), number.imaginary = read<float>(bytes + 4);
        else if (from == "c16") number.value = read<double>(bytes), number.imaginary = read<double>(bytes + 8);
        else return false;
    }
    return true;
}
}  // namespace

extern "C" int judge(const char* to_name, const char* from_name, const unsigned char* bytes, unsigned char* out) {
    const std::string to = to_name, from = from_name;
    Number number;
    if (!take(from, bytes, number)) return unknown;
    if (to[0] != 'c' && from[0] == 'c') return refused;  // a complex number is no real one
    if (to == "bool") {
        const int size = put_integer<unsigned char>(number, out);
        return size == 1 && out[0] > 1 ? refused : size;
    }
    if (to == "i1") return put_integer<std::int8_t>(number, out);
    if (to == "u1") return put_integer<std::uint8_t>(number, out);
    if (to == "i2") return put_integer<std::int16_t>(number, out);
    if (to == "u2") return put_integer<std::uint16_t>(number, out);
    if (to == "i4") return put_integer<std::int32_t>(number, out);
    if (to == "u4") return put_integer<std::uint32_t>(number, out);
    if (to == "i8") return put_integer<std::int64_t>(number, out);
    if (to == "u8") return put_integer<std::uint64_t>(number, out);
    if (to == "f4") return put_real<float>(number, out, number.value);
    if (to == "f8") return put_real<double>(number, out, number.value);
    if (to == "c8") return put_complex<float>(number, out);
    if (to == "c16") return put_complex<double>(number, out);
    long double value = number.value;
    if (!number.real) {
        // More bits than a long double has: the lowest is kept as whether any below it is set.
        unsigned __int128 whole = number.integer < 0 ? -(unsigned __int128)number.integer : (unsigned __int128)number.integer;
        int shift = 0;
        for (; whole >> 62; ++shift) whole = (whole >> 1) | (whole & 1);
        value = number.huge ? std::strtold(number.text.c_str(), nullptr) : std::ldexp((long double)(long long)whole, shift);
        if (number.integer < 0) value = -value;
    }
    if (to == "f2") return encode(half, value, out);
    if (to == "bf2") return encode(bfloat, value, out);
    if (to == "e4m3") return encode(e4m3, value, out);
    if (to == "e5m2") return encode(e5m2, value, out);
    return unknown;
}
