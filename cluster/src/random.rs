//! Numbers that no other node comes up with.

pub(crate) fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
    u64::from_le_bytes(bytes).max(1)
}

pub(crate) fn random_key() -> [u8; 32] {
    let mut key = [0; 32];
    getrandom::fill(&mut key).expect("the kernel gives random bytes");
    key
}
