use super::*;

#[test]
fn key_has_one_byte_at_least_and_256_at_most() {
    assert_eq!(Key::new(b""), Err(LimitError::Empty { field: "key" }));
    assert!(Key::new(b"k").is_ok());
    assert!(Key::new(&[0xff; 256]).is_ok());
    let error = Key::new(&[0; 257]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "key has 257 bytes, at most 256 are allowed"
    );
}

#[test]
fn clipped_text_fits_and_ends_at_a_character() {
    let long = "ä".repeat(200);
    let message = Message::clipped(&long);
    assert_eq!(message.as_str(), "ä".repeat(128));
    let odd = format!("x{long}");
    assert_eq!(Message::clipped(&odd).as_str().len(), 255);
    assert_eq!(Message::clipped("short").as_str(), "short");
    assert!(Message::new(&long).is_err());
}

#[test]
fn text_from_the_wire_must_be_utf8() {
    assert_eq!(
        ClientName::from_wire(&[0xff]),
        Err(DecodeError::NotUtf8 {
            field: "client name"
        })
    );
    assert!(
        ClientName::from_wire(&[b'x'; 65]).is_err(),
        "the length is checked first"
    );
}

#[test]
fn secrets_are_never_printed() {
    let token = Token::new(b"sesame").unwrap();
    let session = SessionKey {
        session_id: SessionId::new(3),
        secret: SessionSecret::new(*b"0123456789abcdef"),
    };
    let text = format!("{token:?} {session:?}");
    assert!(!text.contains("sesame"), "{text}");
    assert!(!text.contains("0123") && !text.contains("48"), "{text}");
    assert_eq!(format!("{:?}", Token::default()), "none");
}

#[test]
fn secrets_differ_when_any_byte_does() {
    let secret = SessionSecret::new([7; 16]);
    assert_eq!(secret, SessionSecret::new([7; 16]));
    for index in 0..16 {
        let mut bytes = [7; 16];
        bytes[index] = 8;
        assert_ne!(secret, SessionSecret::new(bytes), "byte {index}");
    }
}

#[test]
fn keys_are_shown_as_escaped_text() {
    assert_eq!(
        format!("{:?}", Key::new(b"orders/42\n\xff").unwrap()),
        r#""orders/42\n\xff""#
    );
}

#[test]
fn fence_is_never_zero() {
    assert_eq!(Fence::new(0), None);
    assert_eq!(Fence::new(9).unwrap().to_string(), "9");
    assert!(Fence::new(2).unwrap() < Fence::new(10).unwrap());
}

#[test]
fn addresses_of_nodes_are_told_whole_or_not_at_all() {
    let address = "n".repeat(limits::NODE_ADDRESS_BYTES_MAX);
    let four = [address.as_str(); 4].join(",");
    let fitting = NodeAddresses::fitting(&four);
    assert!(fitting.iter().map(NodeAddress::as_str).eq([&address; 3]));
    assert_eq!(NodeAddresses::fitting(&four[..767]).as_str(), &four[..767]);
    let (cut, whole) = (&four[..769], &four[..511]);
    assert_eq!(NodeAddresses::fitting(cut).as_str(), &four[..767]);
    assert_eq!(NodeAddresses::fitting(whole).as_str(), whole);
    let endless = "n".repeat(limits::NODE_ADDRESSES_BYTES_MAX + 1);
    assert_eq!(NodeAddresses::fitting(&endless), NodeAddresses::default());
    assert_eq!(NodeAddresses::default().iter().count(), 0);
}

#[test]
fn addresses_that_are_none_are_left_out_of_the_list() {
    let long = "n".repeat(limits::NODE_ADDRESS_BYTES_MAX + 1);
    let text = format!("a:1,, {long}, b:2,");
    let addresses = NodeAddresses::new(&text).unwrap();
    assert!(addresses.iter().map(NodeAddress::as_str).eq(["a:1", "b:2"]));
}
