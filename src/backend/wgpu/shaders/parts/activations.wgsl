// The elementwise functions; numbers are those of `Activation::number`. What is no number stays none, or weights that are
// broken would give text.

// Compilers may think that x != x is never true, and `min`, `max` and `clamp` may give the other operand.
fn not_a_number(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

// Within 2 units in the last place of the true value, as the processor's (backend/cpu/functions.rs): where x is small,
// 1 minus something would lose its digits.
fn precise_tanh(x: f32) -> f32 {
    if not_a_number(x) {
        return x;
    }
    let square = x * x;
    var series = -5.7049887e-3;
    series = series * square + 2.063909e-2;
    series = series * square - 5.3739716e-2;
    series = series * square + 0.13331442;
    series = series * square - 0.3333328;
    let near = series * square * x + x;
    // beyond 10 the result is 1 in f32, and exp must not overflow
    let far = 1.0 - 2.0 / (exp(2.0 * min(abs(x), 10.0)) + 1.0);
    return select(select(-far, far, x > 0.0), near, abs(x) < 0.625);
}

// 1 - erf(z) for z >= 0, relative error below 1.2e-7: Chebyshev fit of Numerical Recipes (W. H. Press et al., 1992, `erfcc`).
fn complementary_error(z: f32) -> f32 {
    let t = 1.0 / (1.0 + 0.5 * z);
    var series = 0.17087277;
    series = series * t - 0.82215223;
    series = series * t + 1.48851587;
    series = series * t - 1.13520398;
    series = series * t + 0.27886807;
    series = series * t - 0.18628806;
    series = series * t + 0.09678418;
    series = series * t + 0.37409196;
    series = series * t + 1.00002368;
    series = series * t - 1.26551223;
    return t * exp(series - z * z);
}

// x Φ(x). Where x is negative, 1 + erf would lose its digits; the complement keeps them.
fn gelu(x: f32) -> f32 {
    let tail = 0.5 * complementary_error(min(abs(x), 20.0) * 0.70710678);
    return x * select(1.0 - tail, tail, x < 0.0);
}

fn sigmoid(x: f32) -> f32 {
    return 1.0 / (1.0 + exp(-clamp(x, -88.0, 88.0))); // e^89 is too large for f32
}

fn activate(number: u32, x: f32) -> f32 {
    if not_a_number(x) {
        return x;
    }
    switch number {
        case 1u: { return gelu(x); }
        // (1 + tanh u) / 2 = σ(2 u), u = √(2/π) (x + 0.044715 x³)
        case 2u: { return x * sigmoid(1.5957692 * (x + 0.044715 * x * x * x)); }
        case 3u: { return x * sigmoid(1.702 * x); }
        case 4u: { return x * sigmoid(x); }
        case 5u: { return max(x, 0.0); }
        case 6u: { return sigmoid(x); }
        case 7u: { return precise_tanh(x); }
        default: { return x; }
    }
}
