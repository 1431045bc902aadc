pub(crate) mod decode;
pub(crate) mod durability;
pub(crate) mod fetched;
pub(crate) mod load;
pub(crate) mod plan;
pub(crate) mod write_out;
