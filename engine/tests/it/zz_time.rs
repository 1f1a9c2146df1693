use crate::common::*;
use std::time::Instant;
#[test]
fn zz() {
    for n in [1000u64, 10_000] {
        let engine = locks();
        let mut seats: Vec<_> = (0..n).map(|_| seat(&engine)).collect();
        let t = Instant::now();
        for s in &mut seats { granted(share(&engine, s, "k", 100, at(0))); }
        println!("{n} readers join: {:?} each {:?}", t.elapsed(), t.elapsed()/n as u32);
        let t = Instant::now();
        advance(&engine, at(100));
        println!("{n} readers expire: {:?}", t.elapsed());
        let mut w = seat(&engine);
        let g = take(&engine, &mut w, "k", 1000, at(101));
        for (i,s) in seats.iter_mut().enumerate() { wait_shared(&engine, s, "k", 100, i as u64, at(102)); }
        let t = Instant::now();
        give_back(&engine, &mut w, "k", g.fence, at(103));
        println!("{n} readers granted: {:?}", t.elapsed());
    }
}
