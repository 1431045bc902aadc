//! The codecs known to the format are those that exist.

use codec::CodecId;
use layout::superblock::KNOWN_CODECS;

#[test]
fn every_codec_has_its_bit_and_every_bit_its_codec() {
    // A record has four bits for its codec.
    for number in 0..=255u8 {
        let is_known = KNOWN_CODECS.checked_shr(number.into()).is_some_and(|bits| bits & 1 == 1);
        match CodecId::try_from(number) {
            Ok(id) => {
                assert_eq!(id as u8, number);
                assert!(is_known && number < 16, "{id:?} has no bit");
            }
            Err(_) => assert!(!is_known, "bit {number} is no codec"),
        }
    }
}
