// Package v1 replaces sigstore's protobuf package of the same path. The library for sigstore
// signatures uses only the names of algorithms from it, no messages. The original imports the
// protobuf runtime, which looks up methods by reflection. The linker then keeps the exported
// methods of all types in the program, which is a quarter of the host's binary.
package v1

import "strconv"

// PublicKeyDetails names a type of key together with the hash that it signs.
type PublicKeyDetails int32

// The types of keys that the library uses, with the numbers of the original.
const (
	PublicKeyDetails_PUBLIC_KEY_DETAILS_UNSPECIFIED PublicKeyDetails = 0
	PublicKeyDetails_PKIX_ECDSA_P256_SHA_256        PublicKeyDetails = 5
	PublicKeyDetails_PKIX_ED25519                   PublicKeyDetails = 7
	PublicKeyDetails_PKIX_ED25519_PH                PublicKeyDetails = 8
	PublicKeyDetails_PKIX_RSA_PKCS1V15_2048_SHA256  PublicKeyDetails = 9
	PublicKeyDetails_PKIX_RSA_PKCS1V15_3072_SHA256  PublicKeyDetails = 10
	PublicKeyDetails_PKIX_RSA_PKCS1V15_4096_SHA256  PublicKeyDetails = 11
	PublicKeyDetails_PKIX_ECDSA_P384_SHA_384        PublicKeyDetails = 12
	PublicKeyDetails_PKIX_ECDSA_P521_SHA_512        PublicKeyDetails = 13
	PublicKeyDetails_PKIX_RSA_PSS_2048_SHA256       PublicKeyDetails = 16
	PublicKeyDetails_PKIX_RSA_PSS_3072_SHA256       PublicKeyDetails = 17
	PublicKeyDetails_PKIX_RSA_PSS_4096_SHA256       PublicKeyDetails = 18
	PublicKeyDetails_PKIX_ECDSA_P384_SHA_256        PublicKeyDetails = 19
	PublicKeyDetails_PKIX_ECDSA_P521_SHA_256        PublicKeyDetails = 20
)

// String returns the number as text.
func (d PublicKeyDetails) String() string { return "key details " + strconv.Itoa(int(d)) }

// HashAlgorithm names a hash algorithm.
type HashAlgorithm int32

// The hash algorithms that the library uses, with the numbers of the original.
const (
	HashAlgorithm_HASH_ALGORITHM_UNSPECIFIED HashAlgorithm = 0
	HashAlgorithm_SHA2_256                   HashAlgorithm = 1
	HashAlgorithm_SHA2_384                   HashAlgorithm = 2
	HashAlgorithm_SHA2_512                   HashAlgorithm = 3
)
