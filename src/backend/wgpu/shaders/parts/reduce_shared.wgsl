// How the THREADS threads of a workgroup add up: a tree in shared memory. Every thread gets the result.

struct Thread {
    @builtin(local_invocation_index) index: u32,
}

var<workgroup> partial: array<vec4<f32>, THREADS>;

fn sum_of_all(thread: Thread, value: vec4<f32>) -> vec4<f32> {
    workgroupBarrier(); // what was shared before has been read
    partial[thread.index] = value;
    for (var half = THREADS / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if thread.index < half {
            partial[thread.index] += partial[thread.index + half];
        }
    }
    workgroupBarrier();
    return partial[0];
}

fn largest_of_all(thread: Thread, value: f32) -> f32 {
    workgroupBarrier();
    partial[thread.index].x = value;
    for (var half = THREADS / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if thread.index < half {
            partial[thread.index].x = max(partial[thread.index].x, partial[thread.index + half].x);
        }
    }
    workgroupBarrier();
    return partial[0].x;
}
