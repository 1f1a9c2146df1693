//! Question: what do the frames of one lock and its release cost to write and to read?
//!
//! Unit: nanoseconds per batch of 128 frames, the way they come off a socket, and frames a second.
//! Requests are read as the server reads them, replies as a client does.
//!
//! Leaves out: the socket, and messages that no hot path sends.

use bench::keys::key_bytes;
use bytes::BytesMut;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use protocol::{Acquire, Fence, Frame, Key, Lease, Reply, Request, RequestId, limits};
use std::hint::black_box;

/// Frames in a batch: half of them acquires and grants, half of them releases.
const FRAMES: u64 = 128;

fn append_requests(out: &mut BytesMut) {
    let fence = Fence::new(1 << 40).expect("not zero");
    for number in (0..FRAMES).step_by(2) {
        let bytes = key_bytes(number);
        let key = Key::new(&bytes).expect("16 bytes");
        let acquire = Acquire::exclusive(key, Lease::Ttl { ttl_ms: 30_000 });
        Request::Acquire(acquire).append(RequestId::new(number + 1), out);
        Request::Release { key, fence }.append(RequestId::new(number + 2), out);
    }
}

fn append_replies(out: &mut BytesMut) {
    let granted = Reply::Granted {
        fence: Fence::new(1 << 40).expect("not zero"),
        ttl_ms: 30_000,
        hold_count: 1,
    };
    let released = Reply::Released { remaining_count: 0 };
    for number in (0..FRAMES).step_by(2) {
        granted.append(RequestId::new(number + 1), out);
        released.append(RequestId::new(number + 2), out);
    }
}

/// Splits every frame off and hands it to `decode`. Returns how many there were.
fn read_all(bytes: &[u8], decode: impl Fn(&Frame<'_>)) -> u64 {
    let (mut unread, mut frames) = (bytes, 0);
    while let Some(frame) =
        Frame::split(&mut unread, limits::FRAME_BYTES_MAX).expect("we wrote them")
    {
        decode(&frame);
        frames += 1;
    }
    frames
}

fn protocol(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("protocol");
    group.throughput(Throughput::Elements(FRAMES));
    let mut out = BytesMut::with_capacity(64 * 1024);
    group.bench_function("encode requests", |bencher| {
        bencher.iter(|| {
            out.clear();
            append_requests(&mut out);
            black_box(&out);
        });
    });
    group.bench_function("encode replies", |bencher| {
        bencher.iter(|| {
            out.clear();
            append_replies(&mut out);
            black_box(&out);
        });
    });

    let (mut requests, mut replies) = (BytesMut::new(), BytesMut::new());
    append_requests(&mut requests);
    append_replies(&mut replies);
    group.bench_function("decode requests", |bencher| {
        bencher.iter(|| {
            let frames = read_all(black_box(&requests), |frame| {
                black_box(Request::decode(frame).expect("we wrote it"));
            });
            assert_eq!(frames, FRAMES);
        });
    });
    group.bench_function("decode replies", |bencher| {
        bencher.iter(|| {
            let frames = read_all(black_box(&replies), |frame| {
                black_box(Reply::decode(frame).expect("we wrote it"));
            });
            assert_eq!(frames, FRAMES);
        });
    });
    group.finish();
}

criterion_group!(benches, protocol);
criterion_main!(benches);
