//! Compiles one loop for several instruction sets and picks the best at run time.
//!
//! The loops are ordinary code over short arrays; the compiler vectorises them. A loop is written once, as a
//! [`Kernel`], and [`dispatch`] instantiates it inside functions that enable wider instructions. The choice depends on
//! the machine alone, so it never changes a result between two runs on one machine.

/// How many f32 lanes a loop keeps side by side: one 512-bit register, two of 256 bits, four of 128.
pub(super) const LANES: usize = 16;

/// A loop with its arguments.
pub(super) trait Kernel {
    /// What the loop returns.
    type Output;

    /// The loop. `FUSED` says whether [`fused`] is one instruction; implementations are `#[inline(always)]`, as is all
    /// they call, so that they are compiled anew for each instruction set.
    fn run<const FUSED: bool>(self) -> Self::Output;
}

/// `a * b + c`, rounded once where that is one instruction.
#[inline(always)]
pub(super) fn fused<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    // without the instruction `mul_add` is a slow library call
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// Adds up lanes pairwise.
#[inline(always)]
pub(super) fn sum_lanes(mut lanes: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// Runs a loop with the widest instructions of this machine.
pub(super) fn dispatch<K: Kernel>(kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
        {
            // SAFETY: the machine has every feature that `run_avx512` enables.
            return unsafe { run_avx512(kernel) };
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the machine has every feature that `run_avx2` enables.
            return unsafe { run_avx2(kernel) };
        }
    }
    if cfg!(target_arch = "aarch64") { kernel.run::<true>() } else { kernel.run::<false>() }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn run_avx512<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<true>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<true>()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Probe;

    impl Kernel for Probe {
        type Output = f32;
        #[inline(always)]
        fn run<const FUSED: bool>(self) -> f32 {
            fused::<FUSED>(3.0, 4.0, 5.0)
        }
    }

    #[test]
    fn every_instruction_set_runs_the_same_loop() {
        assert_eq!(dispatch(Probe).to_bits(), 17f32.to_bits());
        assert_eq!(Probe.run::<false>().to_bits(), Probe.run::<true>().to_bits());
    }

    #[test]
    fn lanes_add_up() {
        let lanes: [f32; LANES] = std::array::from_fn(|lane| lane as f32);
        assert_eq!(sum_lanes(lanes).to_bits(), 120f32.to_bits());
    }
}
