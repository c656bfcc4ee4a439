"""Kernels in pairs: a small fault, and the same without it. None of the first is proved, and all of the second are."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import pytest
from support.tiers import thinned

import cudakit as ck

pytestmark = pytest.mark.emulator
pytest.importorskip("z3", reason="the extra prove is not installed")

COVER = {"block": 128, "grid": "(n + 127) // 128"}


class Twins(NamedTuple):
    """A kernel's parameters and body, where «wrong¦right» stands for what differs, and ``@`` for an index ``i``."""

    name: str
    parameters: str
    body: str
    stated: tuple[str, ...]
    launch: dict[str, Any]
    #: What stands before the kernel: a struct, a variable, a template's head.
    ahead: str = ""

    def __repr__(self) -> str:
        return self.name

    def proof(self, is_right: bool) -> Any:
        """The proof of one of the two."""

        def chosen(text: str) -> str:
            return re.sub("«([^¦]*)¦([^»]*)»", lambda match: match[1 + is_right], text)

        body = self.body.replace("@", "int i = blockIdx.x * blockDim.x + threadIdx.x;")
        text = f"{self.ahead}\n__global__ void {self.name}({self.parameters}) {{ {body} }}"
        return ck.prove(ck.Kernel(chosen(text)), *map(chosen, self.stated), **self.launch, timeout_s=3.0)


TWINS = [
    Twins(
        "off_by_one_loop",
        "int n,const float*x,float*y",
        "@ if(i==0){float s=0; for(int k=0;k«<=¦<»n;++k) s+=x[k]; y[0]=s;}",
        ("n <= len(x)", "len(y) >= 1", "0 <= n <= 1 << 20"),
        COVER,
    ),
    Twins(
        "negative_index",
        "int n,int d,const float*x,float*y",
        "@ if(i<n) y[i]=«x[i-d]¦i>=d?x[i-d]:0.f»;",
        ("n <= len(x)", "n <= len(y)", "0 <= d <= 100", "n <= 1 << 20"),
        COVER,
    ),
    Twins(
        "negative_modulo",
        "int n,int d,const float*x,float*y",
        "@ if(i<n) y[i]=x[(i-d«¦+n»)%n];",
        ("n <= len(x)", "n <= len(y)", "0 <= d <= n", "1 <= n <= 1 << 20"),
        COVER,
    ),
    Twins(
        "pitch_2d",
        "int h,int w,int pitch,float*y",
        ("int c=blockIdx.x*16+threadIdx.x,r=blockIdx.y*16+threadIdx.y; if(r<h&&c<«pitch¦w») y[r*«w¦pitch»+c]+=1;"),
        ("h*pitch <= len(y)", "1 <= h <= 1000", "1 <= w < pitch", "pitch <= 1000"),
        {"block": (16, 16), "grid": ("(pitch+15)//16", "(h+15)//16")},
    ),
    Twins(
        "pitch_unaligned",
        "int h,int w,size_t pitch,unsigned char*y",
        (
            "int c=blockIdx.x*16+threadIdx.x,r=blockIdx.y*16+threadIdx.y; if(r<h&&c<w) "
            "((float*)(y+r*pitch«¦/4*4»))[c]=1;"
        ),
        ("h*pitch <= len(y)", "1 <= h <= 1000", "1 <= w <= 1000", "4*w+4 <= pitch", "pitch <= 8192"),
        {"block": (16, 16), "grid": ("(w+15)//16", "(h+15)//16")},
    ),
    Twins(
        "unsigned_underflow",
        "unsigned n,float*y",
        "unsigned i=blockIdx.x*blockDim.x+threadIdx.x; if(i«<n-1¦+1<n») y[i+1]=1;",
        ("n <= len(y)", "n <= 1 << 20"),
        {"block": 128, "grid": "(n+128)//128"},
    ),
    Twins(
        "minus_one_as_size",
        "int n,float*y",
        "@ if((«unsigned¦int»)i<(«unsigned¦int»)n) y[i]=1;",
        ("n <= len(y)", "n <= 1 << 20"),
        {"block": 128, "grid": 4},
    ),
    Twins(
        "early_return_barrier",
        "int n,float*y",
        (
            "__shared__ float s[128]; @ «if(i>=n) return; "
            "s[threadIdx.x]=y[i];¦s[threadIdx.x]=i<n?y[i]:0;» __syncthreads(); if(i<n) y[i]=s[0];"
        ),
        ("n <= len(y)", "0 <= n <= 1 << 20"),
        COVER,
    ),
    Twins(
        "sync_in_branch",
        "int n,float*y",
        (
            "__shared__ float s[128]; s[threadIdx.x]=y[threadIdx.x]; if(«threadIdx.x<n¦n>5») "
            "__syncthreads(); else «¦__syncthreads();» y[threadIdx.x]=s[threadIdx.x]; "
        ),
        ("len(y) >= 128", "0 <= n <= 128"),
        {"block": 128, "grid": 1},
    ),
    Twins(
        "scan_without_copy",
        "const float*x,float*y",
        (
            "__shared__ float s[128]; int t=threadIdx.x; s[t]=x[t]; __syncthreads(); for(int "
            "k=1;k<128;k*=2){ float v=t>=k?s[t-k]:0; «¦__syncthreads();» s[t]+=v; __syncthreads(); } "
            "y[t]=s[t];"
        ),
        ("len(x) >= 128", "len(y) >= 128"),
        {"block": 128, "grid": 1},
    ),
    Twins(
        "vector_tail",
        "int n,const float*x,float*y",
        "@ if(i<«(n+3)/4¦n/4») ((float4*)y)[i]=((const float4*)x)[i];",
        ("n <= len(x)", "n <= len(y)", "0 <= n <= 1 << 20"),
        COVER,
    ),
    Twins(
        "short_wrap",
        "int n,float*y",
        "for(«short¦int» i=0;i<n;++i) if(i«<100000¦<100000») y[i]=1;",
        ("n <= len(y)", "0 <= n <= 100000"),
        {"block": 1, "grid": 1},
    ),
    Twins(
        "byte_of_counter",
        "int n,int*y",
        "@ if(i<n) atomicAdd(&y[(«signed char¦unsigned char»)i],1);",
        ("len(y) >= 256", "0 <= n <= 1 << 20"),
        COVER,
    ),
    Twins(
        "down_count",
        "int n,float*y",
        "for(«unsigned¦int» k=n-1;k>=0«&&k!=5u¦»;--k) y[k]=1;",
        ("n <= len(y)", "0 <= n <= 1 << 20"),
        {"block": 1, "grid": 1},
    ),
    Twins(
        "step_over",
        "int n,float*y",
        "for(int k=0;k«!=¦<»n;k+=2) y[k]=1;",
        ("n <= len(y)", "0 <= n <= 1 << 20"),
        {"block": 1, "grid": 1},
    ),
    Twins(
        "unrolled_by_4",
        "int n,float*y",
        "@ for(int k=4*i;k<n;k+=4*128*gridDim.x){ y[k]=1; «¦if(k+1<n)» y[k+1]=1; }",
        ("n <= len(y)", "0 <= n <= 1 << 20", "gridDim.x <= 1024"),
        {"block": 128},
    ),
    Twins(
        "halo_right",
        "int n,const float*x,float*y",
        (
            "__shared__ float s[130]; int t=threadIdx.x,i=blockIdx.x*128+t; s[t+1]=i<n?x[i]:0; "
            "if(t==0) s[0]=i>0&&i<=n?x[i-1]:0; if(t==127) s[129]=i«¦+1»<n?x[i+1]:0; __syncthreads(); "
            "if(i<n) y[i]=s[t]+s[t+2];"
        ),
        ("n <= len(x)", "n <= len(y)", "0 <= n <= 1 << 20"),
        COVER,
    ),
    Twins(
        "two_d_block",
        "int n,float*y",
        "int i=blockIdx.x*128+threadIdx.x«¦+threadIdx.y*64»; if(i<n) y[i]+=1;",
        ("n <= len(y)", "0 <= n <= 1 << 20"),
        {"block": (64, 2), "grid": "(n+127)//128"},
    ),
    Twins(
        "xor_partner",
        "int n,float*y",
        "@ int j=i^1; if(i<n«¦&&j<n»&&i<j){float a=y[i]; y[i]=y[j]; y[j]=a;}",
        ("n <= len(y)", "0 <= n <= 1 << 20"),
        COVER,
    ),
    Twins(
        "atomic_then_plain",
        "int n,int*y",
        "@ if(i<n) atomicAdd(&y[i%4],1); if(i==0) «y[0]=0¦y[5]=0»;",
        ("len(y) >= 6", "0 <= n <= 1 << 20"),
        COVER,
    ),
    Twins(
        "reduce_odd",
        "const float*x,float*y",
        (
            "__shared__ float s[96]; int t=threadIdx.x; s[t]=x[t]; __syncthreads(); for(int "
            "k=48;k>0;k/=2){ if(t<k) s[t]+=s[t+k«*2¦»]; __syncthreads(); } if(t==0) y[0]=s[0];"
        ),
        ("len(x) >= 96", "len(y) >= 1"),
        {"block": 96, "grid": 1},
    ),
    Twins(
        "swap_pairs",
        "int n,float*y",
        "@ if(«i<n¦2*i+1<n») {float a=y[2*i]; y[2*i]=y[2*i+1]; y[2*i+1]=a;}",
        ("n <= len(y)", "0 <= n <= 1 << 20"),
        COVER,
    ),
    Twins(
        "index_minus",
        "int n,const int*ids,const float*t,float*y",
        "@ if(i<n) y[i]=t[ids[i]-«1¦0»];",
        ("n <= len(ids)", "n <= len(y)", "0 <= n <= 1 << 20", "0 <= ids < len(t)"),
        COVER,
    ),
    Twins(
        "index_sum",
        "int n,const int*ids,const float*t,float*y",
        "@ if(i<n-1) y[i]=t[(ids[i]+ids[i+1])«¦/2»];",
        ("n <= len(ids)", "n <= len(y)", "0 <= n <= 1 << 20", "0 <= ids < len(t)", "len(t) <= 1 << 20"),
        COVER,
    ),
    Twins(
        "index_of_other_bound",
        "int n,int m,const int*ids,const float*t,float*y",
        "@ if(i<n) y[i]=t[ids[i]];",
        ("n <= len(ids)", "n <= len(y)", "0 <= n <= 1 << 20", "0 <= ids < m", "«m <= n¦m <= len(t)»"),
        COVER,
    ),
    Twins(
        "index_unsigned",
        "int n,const unsigned*ids,const float*t,float*y",
        "@ if(i<n) y[i]=t[ids[i]«-1u¦»];",
        ("n <= len(ids)", "n <= len(y)", "0 <= n <= 1 << 20", "ids < len(t)"),
        COVER,
    ),
    Twins(
        "index_cast",
        "int n,const int*ids,const float*t,float*y",
        "@ if(i<n) y[i]=t[«(short)¦»ids[i]];",
        ("n <= len(ids)", "n <= len(y)", "0 <= n <= 1 << 20", "0 <= ids < len(t)"),
        COVER,
    ),
    Twins(
        "index_pair",
        "int n,const int*ids,const float*t,float*y",
        "@ if(2*i+1<n) { int2 p=((const int2*)ids)[i]; y[i]=t[p.x]+t[p.y«+1¦»]; }",
        ("n <= len(ids)", "n <= len(y)", "0 <= n <= 1 << 20", "0 <= ids < len(t)"),
        COVER,
    ),
    Twins(
        "index_of_half",
        "int n,const int*ids,const float*t,float*y",
        "@ if(2*i+1<n) { long long p=((const long long*)ids)[i]; y[i]=t[«p&0xffffffff¦i»]; }",
        ("n <= len(ids)", "n <= len(y)", "n <= len(t)", "0 <= n <= 1 << 20", "0 <= ids < «len(y)¦len(t)»"),
        COVER,
    ),
    Twins(
        "rows_end",
        "int n,const int*ptr,const float*v,float*y",
        "@ if(i<n){float s=0; for(int j=ptr[i];j«<=¦<»ptr[i+1];++j) s+=v[j]; y[i]=s;}",
        ("n+1 <= len(ptr)", "n <= len(y)", "0 <= n <= 1 << 20", "0 <= ptr <= len(v)"),
        COVER,
    ),
    Twins(
        "own_arrays",
        "int n,float*y",
        ("float a[4],b[4]; for(int k=0;k<4;++k){a[k]=y[k];b[k]=y[k+4];} a[n&«7¦3»]=1; y[8]=a[n&3]+b[n&3]+b[(n+1)&3];"),
        ("len(y) >= 9",),
        {"block": 1, "grid": 1},
    ),
    Twins(
        "own_arrays_down",
        "int n,float*y",
        (
            "float a[8],b[8]; \n#pragma unroll 1\nfor(int k=7;k>=«-1¦0»;--k) {a[k]=y[k+1]; "
            "b[k&7]=y[k+2];} y[8]=a[n&7]+b[n&7];"
        ),
        ("len(y) >= 10",),
        {"block": 1, "grid": 1},
    ),
    Twins(
        "float_guard",
        "const float*x,float*y",
        (
            "float v=fabsf(x[threadIdx.x]); if(v«<=¦<»8.f) {int k=(__float_as_int(v)>>23)-130; "
            "if(k>=«0¦1») y[0]=1; else y[32+threadIdx.x]=1;}"
        ),
        ("len(x) >= 32", "len(y) >= 64"),
        {"block": 32, "grid": 1},
    ),
    Twins(
        "float_bits",
        "const float*x,float*y,int n",
        (
            "float v=fabsf(x[threadIdx.x]); if(v>=1.f«&&v<2.f*n¦&&v<4.f») {int "
            "k=(__float_as_int(v)>>23)-127; y[k*32+threadIdx.x]=1;}"
        ),
        ("len(x) >= 32", "len(y) >= 64"),
        {"block": 32, "grid": 1},
    ),
    Twins(
        "float_nan",
        "const float*x,float*y",
        (
            "float v=fabsf(x[threadIdx.x]); if(«!(v>=4.f)¦v<4.f») {int k=__float_as_int(v)>>29; "
            "y[k«¦»*32+threadIdx.x]=1;}"
        ),
        ("len(x) >= 32", "len(y) >= 96"),
        {"block": 32, "grid": 1},
    ),
    Twins(
        "sizes_mixed",
        "int n,int*y",
        "@ if(i<n) atomicAdd(&y[i/2*2],1); if(i<n/2) «((long long*)y)[i]¦y[n+i]»=1;",
        ("2*n <= len(y)", "0 <= n <= 1 << 20"),
        COVER,
    ),
    Twins(
        "struct_len",
        "int n,int2*p",
        "@ if(i<n) ((int*)p)[2*i+«2¦1»]=1;",
        ("n <= len(p)", "0 <= n <= 1 << 20"),
        COVER,
    ),
    Twins(
        "loop_step_2",
        "int n,float*y",
        "for(int k=threadIdx.x*2;k<n;k+=64) { y[k]=1; «¦if(k+1<n)» y[k+1]=1; }",
        ("n <= len(y)", "0 <= n <= 1 << 20"),
        {"block": 32, "grid": 1},
    ),
    Twins(
        "loop_shared",
        "int n,float*y",
        (
            "__shared__ float s[32]; for(int k=0;k<n;++k){ if(threadIdx.x==«k%32¦0») s[«0¦0»]=k; "
            "__syncthreads(); y[threadIdx.x]+=s[0]; «¦__syncthreads();» }"
        ),
        ("len(y) >= 32", "0 <= n <= 1000"),
        {"block": 32, "grid": 1},
    ),
    Twins(
        "early_break",
        "int n,const int*x,float*y",
        (
            "__shared__ int s[32]; for(int k=0;k<n;++k){ if(«x[threadIdx.x]==k¦n==k+5») break; "
            "__syncthreads(); s[threadIdx.x]=k; } y[threadIdx.x]=s[threadIdx.x];"
        ),
        ("len(x) >= 32", "len(y) >= 32", "0 <= n <= 1000"),
        {"block": 32, "grid": 1},
    ),
    Twins(
        "neg_step",
        "int n,float*y",
        "for(int k=n«¦-1»-(int)threadIdx.x;k>=0;k-=32) y[k]=1;",
        ("n <= len(y)", "0 <= n <= 1 << 20"),
        {"block": 32, "grid": 1},
    ),
    Twins(
        "lane_shift",
        "int n,float*y",
        "@ int j=i«^31¦»; if(i<n) y[j]=1;",
        ("n <= len(y)", "0 <= n <= 1 << 20"),
        COVER,
    ),
    Twins(
        "warp_sum",
        "const float*x,float*y",
        (
            "float v=x[threadIdx.x]; for(int o=16;o;o>>=1) v+=__shfl_down_sync(~0u,v,o); "
            "«y[0]=v¦if(threadIdx.x%32==0) y[threadIdx.x/32]=v»;"
        ),
        ("len(x) >= 64", "len(y) >= 2"),
        {"block": 64, "grid": 1},
    ),
    Twins(
        "block_xy",
        "int w,int h,float*y",
        (
            "int i=(blockIdx.y*gridDim.x+blockIdx.x)*blockDim.x*blockDim.y+threadIdx.y*blockDim.«y¦x»"
            "+threadIdx.x; if(i<w*h) y[i]+=1;"
        ),
        ("w*h <= len(y)", "1 <= w <= 1000", "1 <= h <= 1000", "gridDim.x <= 100", "gridDim.y <= 100"),
        {"block": (16, 8)},
    ),
    Twins(
        "axis_up_to_two",
        "int n,float*y",
        "@ if(i<n) y[i]+=1;",
        ("n <= len(y)", "0 <= n <= 1 << 20", "gridDim.x <= 1000", "gridDim.y <= «2¦1»"),
        {"block": 128},
    ),
    Twins(
        "wrap_before_widening",
        "size_t n,int*y",
        "size_t i=«¦(size_t)»blockIdx.x*blockDim.x+threadIdx.x; if(i<n) y[i]=threadIdx.x+blockIdx.x;",
        ("n <= len(y)",),
        {"block": 128},
    ),
    Twins(
        "wrap_of_rows",
        "unsigned h,unsigned w,int*y",
        ("unsigned c=blockIdx.x*16+threadIdx.x,r=blockIdx.y*16+threadIdx.y; if(r<h&&c<w) y[«¦(size_t)»r*w+c]+=1;"),
        ("h*w <= len(y)", "1 <= h <= 70000", "1 <= w <= 70000"),
        {"block": (16, 16), "grid": ("(w+15)//16", "(h+15)//16")},
    ),
    Twins(
        "start_of_the_block",
        "int n,float*y",
        "for(int i=threadIdx.x«¦+blockIdx.x*128»;i<n;i+=128*gridDim.x) y[i]+=1;",
        ("n <= len(y)", "0 <= n <= 1 << 20", "gridDim.x <= 1000"),
        {"block": 128},
    ),
    Twins(
        "transposed",
        "int h,int w,const float*x,float*y",
        (
            "__shared__ float s[16][17]; int c=blockIdx.x*16+threadIdx.x,r=blockIdx.y*16+threadIdx.y; if(r<h&&c<w) "
            "s[threadIdx.y][threadIdx.x]=x[r*w+c]; __syncthreads(); c=blockIdx.«x¦y»*16+threadIdx.x; "
            "r=blockIdx.«y¦x»*16+threadIdx.y; if(r<«h¦w»&&c<«w¦h») y[r*h+c]=s[threadIdx.x][threadIdx.y];"
        ),
        ("h*w <= len(x)", "h*w <= len(y)", "1 <= h <= 1000", "1 <= w <= 1000"),
        {"block": (16, 16), "grid": ("(w+15)//16", "(h+15)//16")},
    ),
    Twins(
        "alias_reversed",
        "int n,const float*x,float*y",
        "@ if(i<n) y[i]=x[«n-1-i¦i»]+1;",
        ("n <= len(x)", "n <= len(y)", "0 <= n <= 1 << 20", "x is y"),
        COVER,
    ),
    Twins(
        "alias_of_index",
        "int n,const int*ids,int*w,const float*t,float*y",
        "@ if(i<n) { w[i]=n; y[i]=t[ids[i]]; }",
        ("n <= len(ids)", "n <= len(w)", "n <= len(y)", "0 <= n <= 1 << 20", "0 <= ids < len(t)", "«w is ids¦1 <= 2»"),
        COVER,
    ),
    Twins(
        "two_counters",
        "int n,float*y",
        "for(int a=0,b=n«¦-1»;a<b;++a,--b){ float v=y[a]; y[a]=y[b]; y[b]=v; }",
        ("n <= len(y)", "0 <= n <= 1 << 20"),
        {"block": 1, "grid": 1},
    ),
    Twins(
        "do_while",
        "int n,float*y",
        "int k=0; do y[k]=2; while(++k<n);",
        ("n <= len(y)", "«0¦1» <= n <= 1 << 20"),
        {"block": 1, "grid": 1},
    ),
    Twins(
        "template_radius",
        "int n,const float*x,float*y",
        (
            "__shared__ float s[128+2*R]; @ int t=threadIdx.x; s[t+R]=i<n?x[i]:0; if(t<«=¦»R){ "
            "s[t]=i>=R&&i-R<n?x[i-R]:0; s[t+R+128]=i+128<n?x[i+128]:0; } __syncthreads(); float v=0; for(int "
            "k=-R;k<=R;++k) v+=s[t+R+k]; if(i<n) y[i]=v;"
        ),
        ("n <= len(x)", "n <= len(y)", "0 <= n <= 1 << 20"),
        COVER,
        "template <int R=3>",
    ),
    Twins(
        "member_array",
        "int n,S*p",
        "@ if(i<n) for(int k=0;k«<=¦<»4;++k) p[i].a[k]+=k;",
        ("n <= len(p)", "0 <= n <= 1 << 20"),
        COVER,
        "struct S { int n; float a[4]; };",
    ),
    Twins(
        "local_rows",
        "unsigned n,float*y",
        "float a[3][4]; for(int k=0;k<12;++k) a[k/4][k%4]=y[k]; y[12]=a[n«&3¦%3»][n&3];",
        ("len(y) >= 13",),
        {"block": 1, "grid": 1},
    ),
    Twins(
        "index_narrowed",
        "int n,const long long*ids,const float*t,float*y",
        "@ if(i<n) y[i]=t[«(int)¦»ids[i]];",
        ("n <= len(ids)", "n <= len(y)", "0 <= n <= 1 << 20", "0 <= ids < len(t)"),
        COVER,
    ),
    Twins(
        "index_by_bytes",
        "int n,const int*ids,const float*t,float*y",
        "@ if(i<n) y[i]=t[((const unsigned char*)ids)[4*i]];",
        ("n <= len(ids)", "n <= len(y)", "0 <= n <= 1 << 20", "0 <= ids < len(t)«¦»", "len(t) >= «100¦256»"),
        COVER,
    ),
    Twins(
        "vector_of_offset",
        "int n,int m,float*y",
        "@ if(4*i+3<n) ((float4*)(y+m))[i]=make_float4(1,2,3,4);",
        ("n+m <= len(y)", "0 <= n <= 1 << 20", "0 <= m <= 1 << 20", "m % «2¦4» == 0"),
        COVER,
    ),
    Twins(
        "shared_char_cast",
        "float*y",
        (
            "__shared__ char pad[3]; __shared__ «¦__align__(4)» char raw[128]; int t=threadIdx.x; "
            "((int*)raw)[t]=(int)y[t]; if(t<3) pad[t]=t; __syncthreads(); y[t]=((int*)raw)[31-t]+pad[t%3];"
        ),
        ("len(y) >= 32",),
        {"block": 32, "grid": 1},
    ),
    Twins(
        "abs_of_min",
        "int n,int m,const int*x,int*y",
        "@ if(i<n) atomicAdd(&y[«abs(x[i])¦(int)((unsigned)x[i]%(unsigned)m)»%m],1);",
        ("n <= len(x)", "m <= len(y)", "0 <= n <= 1 << 20", "1 <= m <= 1 << 20"),
        COVER,
    ),
    Twins(
        "bit_field",
        "int n,const S*x,int*y",
        "@ if(i<n) atomicAdd(&y[x[i].k],1);",
        ("n <= len(x)", "len(y) >= 16", "0 <= n <= 1 << 20"),
        COVER,
        "struct S { «int¦unsigned» a:5; «int¦unsigned» k:4; };",
    ),
    Twins(
        "warps_of_any_block",
        "float*y",
        ("__shared__ float s[16]; int t=threadIdx.x; if((t&31)==0) s[t>>5]=y[t]; __syncthreads(); y[t]=s[t>>5];"),
        ("blockDim.x <= len(y)", "blockDim.y == 1", "blockDim.z == 1", "blockDim.x <= «513¦512»"),
        {"grid": 1},
    ),
    Twins(
        "modulo_of_zero",
        "int n,int m,int*y",
        "@ if(i<n) atomicAdd(&y[i%m],1);",
        ("n <= len(y)", "0 <= n <= 1 << 20", "«0¦1» <= m <= 1 << 20"),
        COVER,
    ),
    Twins(
        "variable_bound",
        "float*y",
        "int i=threadIdx.x; if(i<bound) y[i]=1;",
        ("len(y) >= 10",),
        {"block": 32, "grid": 1},
        "__device__ «¦const» int bound=10;",
    ),
    Twins(
        "shared_neighbours",
        "float*y",
        (
            "__shared__ float a[64],b[64]; int t=threadIdx.x; «¦if(t<64)» {a[t]=y[t]; b[t&63]=y[t&31];} "
            "__syncthreads(); y[t]=a[63-(t&63)]+b[63-(t&63)];"
        ),
        ("len(y) >= 128",),
        {"block": 128, "grid": 1},
    ),
    Twins(
        "barrier_of_no_round",
        "int n,const float*x,float*y",
        (
            "__shared__ float s[128]; int t=threadIdx.x; s[t]=x[t]; float v=0; for(int k=0;k<n;++k){ __syncthreads(); "
            "v+=x[k]; } y[t]=s[127-t]+v;"
        ),
        ("len(x) >= 128", "len(y) >= 128", "n <= len(x)", "«0¦1» <= n <= 1000"),
        {"block": 128, "grid": 1},
    ),
    Twins(
        "rounds_apart",
        "float*y",
        "for(int k=0;k<2;++k) y[threadIdx.x+k«¦*128»]=k+threadIdx.x;",
        ("len(y) >= 256",),
        {"block": 128, "grid": 1},
    ),
    Twins(
        "reflected",
        "int n,const float*x,float*y",
        "@ if(i<n){ int j=i-2,k=i+2; j=j<0?-j:j; k=k>=n?2*n-2-k:k; y[i]=x[j]+x[k]; }",
        ("n <= len(x)", "n <= len(y)", "«1¦3» <= n <= 1 << 20"),
        COVER,
    ),
    Twins(
        "carved",
        "int n,float*y",
        (
            "extern __shared__ int s[]; int t=threadIdx.x; int*a=s; float*b=(float*)(a+n«-1¦»); a[t]=t; b[t]=y[t]; "
            "__syncthreads(); y[t]=a[n-1-t]+b[n-1-t];"
        ),
        ("n <= len(y)", "1 <= n <= 1024"),
        {"block": "n", "grid": 1, "shared_bytes": "8*n"},
    ),
    Twins(
        "atomics_of_the_block",
        "int n,int*y",
        "@ if(i<n) atomicAdd«_block¦»(&y[i%4],1);",
        ("len(y) >= 4", "0 <= n <= 1 << 20"),
        COVER,
    ),
    Twins(
        "index_aligned",
        "int n,const int*ids,const float*x,float4*y",
        "@ if(i<n) y[i]=*(const float4*)(x+ids[i]);",
        ("n <= len(ids)", "n <= len(y)", "0 <= n <= 1 << 20", "0 <= ids", "ids+4 <= len(x)", "ids % «2¦4» == 0"),
        COVER,
    ),
]


@pytest.mark.parametrize("twins", thinned(TWINS, 22), ids=repr)
@pytest.mark.usefixtures("kept_outcomes")
def test_a_small_fault_is_never_proved_and_its_twin_is(twins: Twins) -> None:
    assert not twins.proof(is_right=False)
    assert twins.proof(is_right=True)
