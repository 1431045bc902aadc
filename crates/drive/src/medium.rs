pub(crate) mod decode;
pub(crate) mod durability;
pub(crate) mod fetched;
pub(crate) mod live_sample;
pub(crate) mod load;
pub(crate) mod plan;
pub(crate) mod read;
pub(crate) mod write_out;
