//! Question: what does one batch cost on one connection: read, decide, write?
//!
//! Unit: microseconds per batch of acquires and then of their releases, over loopback to a server
//! in this process with one thread, and operations a second. Batches of 1, 16 and 128: the first
//! shows the way there and back, the last what an operation adds to it.
//!
//! Leaves out: other connections, contention, and a machine whose cores are busy otherwise. For
//! those: `bench --many-keys`.

use bench::keys::key_bytes;
use bytes::BytesMut;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use protocol::{Acquire, ClientName, Frame, Hello, Key, Lease, Reply, Request, RequestId, limits};
use std::io::{Read, Write};
use std::net::TcpStream;

/// A connection that blocks, with whatever it has read and not taken yet.
struct Connection {
    stream: TcpStream,
    input: BytesMut,
    next_id: u64,
}

impl Connection {
    fn open(server: &server::Server) -> Self {
        let stream = TcpStream::connect(server.local_addr()).expect("the server runs");
        stream.set_nodelay(true).expect("a TCP socket");
        let mut connection = Connection {
            stream,
            input: BytesMut::new(),
            next_id: 1,
        };
        let mut out = BytesMut::new();
        let hello = Hello::new(ClientName::new("bench").expect("short"));
        Request::Hello(hello).append(RequestId::new(1), &mut out);
        connection.exchange(&out, 1, |reply| {
            assert!(matches!(reply, Reply::Welcome(_)), "{reply:?}");
        });
        connection
    }

    fn id(&mut self) -> RequestId {
        self.next_id += 1;
        RequestId::new(self.next_id)
    }

    /// Sends a batch in one write and reads until all of it is answered.
    fn exchange(&mut self, out: &[u8], replies: usize, mut take: impl FnMut(Reply<'_>)) {
        self.stream.write_all(out).expect("the server reads");
        let (mut missing, mut chunk) = (replies, [0; 16 * 1024]);
        while missing > 0 {
            let read_bytes = self.stream.read(&mut chunk).expect("the server answers");
            assert_ne!(read_bytes, 0, "the server closed the connection");
            self.input.extend_from_slice(&chunk[..read_bytes]);
            let mut unread = &self.input[..];
            while let Some(frame) =
                Frame::split(&mut unread, limits::FRAME_BYTES_MAX).expect("whole frames")
            {
                take(Reply::decode(&frame).expect("a reply"));
                missing -= 1;
            }
            let taken = self.input.len() - unread.len();
            let _ = self.input.split_to(taken);
        }
    }
}

fn batches(criterion: &mut Criterion) {
    let builder = server::Server::builder().threads(1);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let builder = builder.with(|config| config.data_dir = directory.path().to_owned());
    let server = builder.start().expect("a free port");
    let mut connection = Connection::open(&server);
    let mut group = criterion.benchmark_group("connection");
    for batch in [1, 16, 128] {
        group.throughput(Throughput::Elements(2 * batch));
        let keys: Vec<[u8; 16]> = (0..batch).map(key_bytes).collect();
        let id = BenchmarkId::new("acquire and release", batch);
        group.bench_function(id, |bencher| {
            let mut out = BytesMut::new();
            let mut fences = Vec::new();
            bencher.iter(|| {
                out.clear();
                for key in &keys {
                    let key = Key::new(key).expect("16 bytes");
                    let acquire = Acquire::exclusive(key, Lease::Ttl { ttl_ms: 30_000 });
                    Request::Acquire(acquire).append(connection.id(), &mut out);
                }
                fences.clear();
                connection.exchange(&out, keys.len(), |reply| match reply {
                    Reply::Granted { fence, .. } => fences.push(fence),
                    other => panic!("{other:?}"),
                });
                out.clear();
                for (key, &fence) in keys.iter().zip(&fences) {
                    let key = Key::new(key).expect("16 bytes");
                    Request::Release { key, fence }.append(connection.id(), &mut out);
                }
                connection.exchange(&out, keys.len(), |reply| {
                    assert!(matches!(reply, Reply::Released { .. }), "{reply:?}");
                });
            });
        });
    }
    group.finish();
}

criterion_group!(benches, batches);
criterion_main!(benches);
