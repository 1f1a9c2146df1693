//! Which script a text is. A published text is known by its SHA-1, which is also how clients name
//! it. A copy that was laid out anew is known by the hash of its normal form. No text is kept.
//!
//! Left out on purpose: Redisson's fair and read-write locks, and redis-semaphore's semaphores.
//! They are other data structures.

use super::Script;
use super::claimed::Claimed;
use super::normal::{self, Form};
use super::owned::Owned;
use super::redisson::{Publishing::*, Redisson, Unlocking::*};
use super::several::{Arguments::*, Several};
use super::signalled::{Lasting::*, Signalled};
use super::spelling;
use crate::observe::metrics::Counter;
use hashbrown::HashMap;
use sha1::{Digest, Sha1};
use std::sync::LazyLock;

/// What `EVALSHA` names a script by.
pub(crate) type Sha = [u8; 20];

/// One published text.
struct Published {
    sha: Sha,
    form: Form,
    script: Script,
}

/// Rows of: the SHA-1 of a published text, the hash of its normal form, what it does.
macro_rules! published {
    (@script $family:ident $what:ident) => {
        Script::$family($family::$what)
    };
    (@script $family:ident $what:ident $how:ident) => {
        Script::$family($family::$what($how))
    };
    ($($sha:literal $form:literal $family:ident($what:ident $(($how:ident))?);)*) => {
        [$(Published {
            sha: sha($sha),
            form: $form,
            script: published!(@script $family $what $($how)?),
        }),*]
    };
}

const PUBLISHED: [Published; 99] = published! {
    // redis-py
    "5688a2541c9edd77746bcd2385e65ff3639a664f" 0x9e4d4b3c01925eadba3826fad4d0e27a Claimed(NewOrEndless);
    "c3f8721cbb97f72bc19e972846bd7aaf91901658" 0xf0c433aa73b4e367ea4f32ba4b317b05 Owned(Delete);
    "4a484ac024e9b025224cd9f8e1d59dbf3c15d00d" 0x7ba79f9586c30a911b7cb54d6afff98b Owned(ExpireLater);
    "1cac51482acf5858da00f6d685d68f886cd6b6b2" 0xb8dfbe577319a6c5635e8027a19e17d3 Owned(Expire);
    "a4e8783852e6b949f9ef3a97212805108459a890" 0x64b003a34d0940642a5f8341180cb8f6 Owned(ExpireLaterOrSet);
    // python-redis-lock
    "4920be04acb2576961effa684f14506ea68fe297" 0xd49f64c804869507561e7093f34926db Signalled(ReleaseAndAdd);
    "59671d8456421a336e9ab0adba2a97d5f5bbb1ae" 0x7551677c8a88be652511dd1e0513bac5 Signalled(Release);
    "6b20b1ed22f1d9a3df1dc2616e9cdd32a13e7740" 0xc09ea1ef541e508bda3949609b2c6419 Signalled(Unlock(OneSecond));
    "2e1257df468c334a0dcc2ca4577c3c13f32fce24" 0x12e812375b0c0b298cdf5e149ffeae08 Signalled(ExtendReversed);
    "596e92cf03683cfede162551b468e60d7d70f81d" 0x218ba46b444c10490e2ce4a3bc82cac2 Signalled(Reset(OneSecond));
    "dc1e6ea4fc20d70a60aa3ab10780c696e74d541e" 0x4659f668cc05f55205cb39a06ceea543 Signalled(Unlock(Forever));
    "1ccce134439127b3c1bfcb9e8d99b7e3431b0daa" 0xa5818279add5db0d589955f9f461865b Signalled(Reset(Forever));
    "ae7cc25ea7f8e1bf59f60e7e4d68ebf4c24a97ad" 0x380a0054c24caba75d7210548161179f Signalled(Unlock(Key));
    "347d641ef9f9783e6ce66686792cd09e0a388ea0" 0x00ef15cec65c2b2f0137fe56de98ebc7 Signalled(Reset(Key));
    "90da91872223f85eb1376a17e3c4df21ace8c54b" 0x89a18ba968ca8e07bb984ed162d57b7b Signalled(Unlock(Argument));
    "fed16109024d968d9496e4140fe1355bac05ebff" 0x1cd410ad5c639f99d4fa7febda628350 Signalled(Extend);
    "afbc8014508f92e446b56567e8ba600e811c1bd5" 0x9499867fece4cabc2c0d57e283bcc4eb Signalled(Reset(Argument));
    "b121d3548d693116c3851b63befe947e49f28c7c" 0x371e36e160c87634e638b9e6238c069f Signalled(ResetAll);
    // pottery
    "f458acd98fe495b8e4ff97c0f53f745f2c4aa252" 0x1a560f46e2cfbd972418879a7b574f39 Owned(TimeLeftOrZero);
    "307044d49c8f033fbb885e9e0f1b7fe9e0e60675" 0xb78149ee1133fd886f453c53271b0f90 Owned(Expire);
    "d141b64a0a43e66a8576edaea6123638c0d74b31" 0x1a8f3d3ec8b7d38d0fa2c276ee58c57d Owned(Delete);
    "f5f7bd3a3aa4a63c507c1155c5ea1219b350d992" 0x1a560f46e2cfbd972418879a7b574f39 Owned(TimeLeftOrZero);
    "ba015a80261b616e7a62d35df0b8e3edbe6c9414" 0xb78149ee1133fd886f453c53271b0f90 Owned(Expire);
    "a4aada0b36710970eedaaaeec4a6b7d8c78c4f80" 0x1a8f3d3ec8b7d38d0fa2c276ee58c57d Owned(Delete);
    // aioredlock
    "c75a9bf1538efcdb1f383acc3e273c5089d57e58" 0xffa2f00cfd969ac8058a34edce376468 Claimed(NewOrOwnError);
    "241e4ca540a1cc4ec1f32d9eb9f879e607d7e6e5" 0xb269512ff0eb2ce042a9bd223c38541b Owned(DeleteOrError);
    "f908d3f43dbcabc68fc0c9ecaf1fa4a285ecdb0a" 0x9faf7dc9623d820fafa6697563441fc7 Owned(Seconds);
    // redlock for Node
    "cf0e94b2e9ffc7e04395cf88f7583fc309985910" 0x1a8f3d3ec8b7d38d0fa2c276ee58c57d Owned(Delete);
    "a2c2e4c111924caec00216d4881ed37a644435ce" 0x982bfdd56987dbc789066879448edb2f Owned(ExpireSeconds);
    "a7aba3bc5d6e99b3003da8b9d80a63b9f4092ecf" 0xb78149ee1133fd886f453c53271b0f90 Owned(Expire);
    "862f31bf38e9b63ce28d6e9e5143551bb34ef981" 0x60c5fedbc67e3e93788641e3e46495b5 Claimed(New);
    "d01fb69e6ecc8bad3ca9bacba9f4f9e96862313f" 0x25490dc6d7990d8ea2490f852c37cc67 Several(Acquire(Plain));
    "517e7ed95f00c0c4a209c6a7afcc6ab797d30b85" 0x6621f7d913c811ee860af5b481b1323a Several(Release(Plain));
    "acaf90b4697bb48bb5f603e9e613a54df7536c70" 0x21f9e8bd40ed44d083bd99d2810edc1a Several(Extend(Plain));
    "e5a322e2634ef59a516e8ea150cb085afafee684" 0xd101e719d6eabd7b7b6f5af7815a71a2 Several(Acquire(Plain));
    "1d48b4c6fea2cdadc46b3346de5c2eaf121c7bb3" 0x4c332072ec7ce36beb41bfcb5733b3f3 Several(Extend(Plain));
    "0f0f23b9048b36752b5be114f357ba083449f908" 0x6621f7d913c811ee860af5b481b1323a Several(Release(Plain));
    "ce46f80993d5dac20dd066eb301a4e37994bdbed" 0x4c332072ec7ce36beb41bfcb5733b3f3 Several(Extend(Plain));
    "96da70f7716f27d278a5218544df37fd8b0a5e4c" 0xd101e719d6eabd7b7b6f5af7815a71a2 Several(Acquire(Plain));
    "aed6f382e410db8ba7926d4e5e9aab410bf2a78a" 0x4c332072ec7ce36beb41bfcb5733b3f3 Several(Extend(Plain));
    "e4612211c9f8f51c257e26e056b0a654b3187242" 0x6621f7d913c811ee860af5b481b1323a Several(Release(Plain));
    // redsync
    "00583931c4e4d483f6233879c133c71ed5393f9d" 0x1a8f3d3ec8b7d38d0fa2c276ee58c57d Owned(Delete);
    "009e6775acf362b837433e2ab6f2b772e391079e" 0xa24ea3481c4ecca1c958e01f841d5d5c Owned(SetAgainOk);
    "53692746b44cae854b8dfa32b177218bbe40baee" 0xb78149ee1133fd886f453c53271b0f90 Owned(Expire);
    "d75bb8b5bd13532ddedd17762e772346e39b321e" 0xb78149ee1133fd886f453c53271b0f90 Owned(Expire);
    "e950836ed1e694540c503ef9972b8de518044d3b" 0x3a5739c3607065a52117e0c005db38f0 Owned(DeleteOrAbsent);
    "b6b55c439e02c6f52ffb8be7ec8c0d0ac816ea79" 0xdcd65b7bd998d1dc451da402173529f7 Claimed(RenewOrNew);
    // bsm/redislock; its older releases use texts of redlock for Node
    "6484da7d58920897fdc22b7f9afd1a3d47524ea8" 0x2ed3a32dcbb5b28b0abd8614f4adaae3 Owned(TimeLeft);
    "80a1b5f2cfccec3b7119ba7721d2127682b691a7" 0x415303497baf7b746da70efbfe51c386 Claimed(NewOrSamePrefix);
    "eb0c00d98f6f33b4262419a509002884540f30be" 0xae7940159b3c7a1bf695a2cb528b8d28 Several(Obtain);
    "66e1084c2d842a7e8c271925aae90219fac4e129" 0xe6bc13f336c2c06548cf596e66a07b06 Several(TimeLeft);
    "5a22d7e8431313862816d4416b5e46dd70fc340d" 0x8e2fc62e7e9a602b512b5d615956c0d0 Several(Refresh);
    "9470c810040e272ee6c579d8d4331aaf6332a7b1" 0x52d7d49f48b656197f0cc5c9d2a1692b Several(Free);
    // rslock
    "daf86bbf8740dd3ca86733367a016364b2110627" 0x1a8f3d3ec8b7d38d0fa2c276ee58c57d Owned(Delete);
    "17a49af0c4b1a9034503fa84f3570f5ca76c4cbf" 0xcb2ba543225e447fcc3c9742ce60cf41 Owned(SetAgain);
    // redlock for Ruby
    "8e4905cee18e7c3188d10f2b8b170e403baed34f" 0x1a8f3d3ec8b7d38d0fa2c276ee58c57d Owned(Delete);
    "963db4d9f0ccfdb859098be0b29f8b41dc02ed97" 0x1a8f3d3ec8b7d38d0fa2c276ee58c57d Owned(Delete);
    "7fe7b0bc5c4277123d3b46d49d1c5a8bc6e4fe8a" 0x915d58d912d9ad7e62cfb5104b0c1539 Claimed(NewOrOwn);
    "91d2b7405df91e02c3e2389f7f1c089b9f9e2632" 0xafb935f998d96e314dbcfd55a756866c Owned(ExpireSecondsZero);
    "a90bf4be8a6e440e3cc24540eb2f9ff1e16fbcc3" 0x3afeb55918e941627bda902effb312fe Claimed(OwnOrNewIfYes);
    "cd1ae9bb543136ebc0a80a277cd59a7cec83b296" 0xfb960a0430739f4b2db3469b07129fa2 Owned(ValueAndTimeLeft);
    "ceb2b2062e40c51a2b3963fd078bc71f11bdc65c" 0x3afeb55918e941627bda902effb312fe Claimed(OwnOrNewIfYes);
    "78d2ca48a6dc9ef6892059792a3a0c5237733d64" 0xfb960a0430739f4b2db3469b07129fa2 Owned(ValueAndTimeLeft);
    // celery-redbeat
    "411b7c153e0ab3ba59d6d1e36cc7858ebd76f2c5" 0xf3e6d8adb64d54471fe91dab34e74d3d Owned(ExpireLimited);
    // ShedLock
    "194f3902b2dd08557818d09fc2e7682d91480e53" 0x1a8f3d3ec8b7d38d0fa2c276ee58c57d Owned(Delete);
    "67256370c2d1c87e2250898075542b1a7fa5b917" 0xb78149ee1133fd886f453c53271b0f90 Owned(Expire);
    // Spring Integration
    "8426c8df41c64d8177dce3ecbbe9146ef3759cd2" 0x32c85a6e665041e3b8be0a69ad256ea0 Claimed(NewOrRenew);
    "c1ae6c899d164de076f40ffe82eba8fb8e27af6c" 0x65a1928ddcf869549d47456a15e88673 Owned(RemovePublish);
    "20b5c3728736e2367b496c16390f9df56916a76f" 0x67a663434cb8c97356f13b86f9d928f2 Owned(RemovePublish);
    "6d2bc6d16248df19e144841297222544e3c7800a" 0x32c85a6e665041e3b8be0a69ad256ea0 Claimed(NewOrRenew);
    "175897a4e379e99e79a54937be09226f76cdcfe5" 0x32c85a6e665041e3b8be0a69ad256ea0 Claimed(NewOrRenew);
    "7a71e9443a2a41539fb115a5a27d5a748a871aed" 0x23edf5e6777d90a3cb045d5d6031a5ca Owned(DeletePublish);
    "b2dedc0ab01c17f9f20e3e6ddb62dcb6afbed0bd" 0xbccc9690dd89ffd42e56284a242a97ab Owned(DeletePublish);
    "f0f9038aa2b6d6c3436c72d147573ea2a58f0ef2" 0x284744c9a592c084dd56567bd906e925 Owned(DeleteTrue);
    "356d97191f2b63031781ccc0e8e82f02e1995a90" 0x9b22de8b1aa991eb4118447ac02826f0 Owned(DeleteTrue);
    "879e0f7b8d83c3266d4e996627438c05dbda0b89" 0xc8c2315472befeed4ae01042a9148fb1 Owned(ExpireTrue);
    "67aebbcba76d9674162e8906de1f669866f48e07" 0x902b6ca81269b591b07104b183afed7e Owned(DeletePublishKey);
    "4d7192f70618a620282e427698f9cde890151e58" 0x2a6963fa3042b4e6cf2eb0322df4c86e Owned(DeletePublishKey);
    // Laravel
    "647c65a442733a1aa440f99908d249d13b4d6c4a" 0x1a8f3d3ec8b7d38d0fa2c276ee58c57d Owned(Delete);
    "a08c9c69b7c07ae2485190873b90d128a23e502d" 0xc1c43061574260ae63fd984b593589e3 Claimed(NewSeconds);
    "d5f94f1848f0c54fff99d99dbc4d54184a157c02" 0x8c3019b8c5e0b11038f5d4477946fa47 Owned(ExpireSecondsOrPersist);
    // Redisson: RLock
    "9401052d872adfd0179ef8c8e8c028512707629a" 0x7a6d085ac2a44c9ed086c5acbc6b7d99 Redisson(Lock);
    "93cfc048f82624d1670a310aa0ad58918c0824a5" 0xdf6f5d1ec20129afdd44281436e12a75 Redisson(Unlock(OrAbsent));
    "7e9c80b3d786b95d5d4aaf8fd73adb9775fa6fb1" 0x6fea86c7056f4ad68ec2e931ba7b86e3 Redisson(Force(Fixed));
    "8e19a1ddbdee9138df9f32a480c57addab4353d1" 0x582d166fcc801d72b9ccc77d6e957c08 Redisson(Renew);
    "3ffe249c16dee540ac8ab32e39bd408626b9aff7" 0x711c4fdb9f42f514fa4b48189a15fee4 Redisson(Unlock(Simple));
    "dad0f8d619e548e04f21fb48d50be5034df3adae" 0x77a5610aadb8e97c2ea7ce5310fb88a4 Redisson(Lock);
    "149c5a8bf18676fd99e9e6e24923bd64d9b62f94" 0x685958cf45f2cdba119cf68835041f97 Redisson(Lock);
    "605e338249a7a1d40df83b04f7658354f883b41b" 0x2ef564243ea78e47302dfcc7a3641a32 Redisson(Force(Chosen));
    "778cea8aada230ae060b432fc333adaec85f2f4c" 0x08c9c047662bf8cfc4f1d662e0733f8a Redisson(Unlock(Via));
    "6866459238a13a701d42f4971f12d9f3a50e2442" 0xa68c7e245975500a02e3a09c2d8e8b4b Redisson(Unlock(Latched));
    "6a3d31570dc6f4b0bd32bcdc8e75667747c6f635" 0x65aa5ff4ed300ec572937d65c3d871e1 Redisson(RenewAll);
    // Redisson: RFencedLock
    "49babb5a1e6a0c5f188c2ae62b93b51cdfd63e45" 0x928f182d2d01e08a68caee0e7825c3af Redisson(LockAndToken);
    "46b5551ba403d6152a7a6eca122e08728d6c8c66" 0x9ad5daec9b87b60f816accd76f969987 Redisson(Lock);
    // redis-semaphore
    "594683e49a64ebaf975caf5f8079a1d097c438f1" 0x610d906d8b69bf41da1ac1f21606faa9 Owned(Expire);
    "7157921a7cc7cfba979acf6d63f073151df17d12" 0xbce1fbf2042ace2c7149727d4f6f88b8 Owned(Delete);
    // @sesamecare-oss/redlock
    "1b77b94aa78451d55dfa97e18819bfbfc596cb5b" 0xf6b1c61da3e727cc5679b674091b4dfe Several(Acquire(InDatabase));
    "820e9778d2b6733e9ed771e4be90ae73a95a6f3b" 0xa7ba2f2a0c81d5f4f762c04569637b4e Several(Extend(InDatabase));
    "df51f6837dcfe303d334e6abea9aeae192bab216" 0xc12f38bf229b16d112e034e8624bbb5d Several(Release(InDatabase));
};

/// The bytes that a SHA-1 in hexadecimal digits stands for.
const fn sha(digits: &str) -> Sha {
    let digits = digits.as_bytes();
    let mut sha = [0; size_of::<Sha>()];
    assert!(digits.len() == 2 * sha.len());
    let mut at = 0;
    while at < digits.len() {
        let value = match digits[at] {
            digit @ b'0'..=b'9' => digit - b'0',
            digit @ b'a'..=b'f' => digit - b'a' + 10,
            _ => panic!("a digit is 0 to 9 or a to f"),
        };
        sha[at / 2] = sha[at / 2] << 4 | value;
        at += 1;
    }
    sha
}

static BY_SHA: LazyLock<HashMap<Sha, Script>> = LazyLock::new(|| {
    let rows = PUBLISHED.iter();
    rows.map(|published| (published.sha, published.script))
        .collect()
});

static BY_FORM: LazyLock<HashMap<Form, Script>> = LazyLock::new(|| {
    let rows = PUBLISHED.iter();
    let rows = rows.map(|published| (published.form, published.script));
    rows.chain(spelling::forms()).collect()
});

/// The published script that has this SHA-1.
pub(crate) fn recognise_sha(sha: &Sha) -> Option<Script> {
    BY_SHA.get(sha).copied()
}

/// A script's text after one look at it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Recognised {
    pub(crate) sha: Sha,
    /// `None`: no script that this port knows.
    pub(crate) script: Option<Script>,
}

/// Hashes a text and finds its script. A call pays for this once: `plan.rs` recognises the text
/// when it names the command, and the command works with the result. `count` rises by one each
/// time.
pub(crate) fn recognise_text(text: &[u8], count: &Counter) -> Recognised {
    count.bump();
    let sha: Sha = Sha1::digest(text).into();
    let script = recognise_sha(&sha).or_else(|| {
        let form = normal::form(text)?;
        BY_FORM.get(&form).copied()
    });
    Recognised { sha, script }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recognise(text: &str) -> Option<Script> {
        recognise_text(text.as_bytes(), &Counter::default()).script
    }

    const DELETE: Option<Script> = Some(Script::Owned(Owned::Delete));
    const EXPIRE: Option<Script> = Some(Script::Owned(Owned::Expire));

    #[test]
    fn no_text_is_there_twice_and_no_form_stands_for_two_scripts() {
        assert_eq!(BY_SHA.len(), PUBLISHED.len());
        let rows = PUBLISHED.iter();
        let rows = rows.map(|published| (published.form, published.script));
        for (form, script) in rows.chain(spelling::forms()) {
            assert_eq!(BY_FORM[&form], script, "{form:032x}");
        }
    }

    #[test]
    fn a_release_is_known_however_it_is_written() {
        let spellings = [
            "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end",
            "if redis.call(\"get\",KEYS[1])==ARGV[1] then return redis.call(\"del\",KEYS[1]) else return 0 end;",
            "-- ours?\r\nif redis.call([[get]], KEYS[1]) == ARGV[1]\r\nthen return redis.call('Del', KEYS[ 1 ])\r\nelse return 0 end",
            "if (redis.call('get', KEYS[1]) == ARGV[1]) then return redis.call('unlink', KEYS[1]) end return 0",
            "local mine = redis.call('get', KEYS[1]); if mine == ARGV[1] then redis.call('del', KEYS[1]); return 1; end; return 0;",
        ];
        for text in spellings {
            assert_eq!(recognise(text), DELETE, "{text}");
        }
    }

    #[test]
    fn a_renewal_is_known_however_it_is_written() {
        let spellings = [
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end",
            "--[[ keep it ]] if redis.call(\"GET\", KEYS[1]) == ARGV[1] then\n\treturn redis.call(\"PEXPIRE\", KEYS[1], ARGV[2]);\nelse\n\treturn 0;\nend;",
        ];
        for text in spellings {
            assert_eq!(recognise(text), EXPIRE, "{text}");
        }
    }

    #[test]
    fn what_means_something_else_is_not_taken_for_it() {
        let others = [
            "if redis.call('get', KEYS[1]) ~= ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
            "if redis.call('get', KEYS[1]) == ARGV[2] then return redis.call('del', KEYS[1]) else return 0 end",
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[2]) else return 0 end",
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('persist', KEYS[1]) else return 0 end",
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 1 end",
            "if redis.call('get', KEYS[1]) == 'ARGV[1]' then return redis.call('del', KEYS[1]) else return 0 end",
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end return 0",
            "if redis.pcall('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
            "local v = redis.call('get', KEYS[1]) if x == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
            "local KEYS = ARGV if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
            "return redis.call('del', KEYS[1])",
            "return 1",
            "",
        ];
        for text in others {
            assert_eq!(recognise(text), None, "{text}");
        }
    }

    #[test]
    fn the_sha_of_a_text_is_the_one_that_redis_gives_it() {
        assert_eq!(
            recognise_text(b"return 1", &Counter::default()).sha,
            sha("e0e1f9fabfc9d4800c877a703b823ac0578ff8db")
        );
    }
}
