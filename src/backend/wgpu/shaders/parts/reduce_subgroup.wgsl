// How the THREADS threads of a workgroup add up: within subgroups first, then their results in shared memory. Every thread
// gets the result. Subgroups may have any size.

struct Thread {
    @builtin(local_invocation_index) index: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
}

var<workgroup> partial: array<vec4<f32>, THREADS>;

fn sum_of_all(thread: Thread, value: vec4<f32>) -> vec4<f32> {
    let own = subgroupAdd(value);
    workgroupBarrier(); // what was shared before has been read
    if thread.lane == 0u {
        partial[thread.subgroup] = own;
    }
    workgroupBarrier();
    var sum = partial[0];
    for (var other = 1u; other < thread.subgroups; other++) {
        sum += partial[other];
    }
    return sum;
}

fn largest_of_all(thread: Thread, value: f32) -> f32 {
    let own = subgroupMax(value);
    workgroupBarrier();
    if thread.lane == 0u {
        partial[thread.subgroup].x = own;
    }
    workgroupBarrier();
    var most = partial[0].x;
    for (var other = 1u; other < thread.subgroups; other++) {
        most = max(most, partial[other].x);
    }
    return most;
}
